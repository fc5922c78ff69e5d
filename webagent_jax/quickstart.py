"""The main job, start to finish: base policy, behaviour cloning, M-GRPO, evaluated in between."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from webagent_jax.config import RunConfig
from webagent_jax.evaluate import evaluate
from webagent_jax.policy.loading import with_policy_path
from webagent_jax.report import html
from webagent_jax.tracking import atomic_files, run_metadata, statistics
from webagent_jax.tracking.progress import Progress
from webagent_jax.train.bc import train_bc
from webagent_jax.train.grpo import check_sampling, train_grpo

Json = dict[str, Any]


def quickstart(cfg: RunConfig, workdir: Path, progress: Progress) -> Json:
    """Runs what is not done yet and returns the content of summary.json.

    Writes bc/, grpo/, eval/base, eval/bc, eval/grpo (each a workdir of its own), summary.json and
    report.html. Killed at any moment, it goes on where it stopped when it is started again.
    """
    check_sampling(cfg)  # before the hour of work that precedes M-GRPO
    run_metadata.open_workdir(workdir, cfg)
    seconds: dict[str, float] = {}

    def phase(name: str, work: Callable[[], object]) -> None:
        seconds[name] = _once(workdir / "phases" / f"{name}.json", work)
        _write(workdir, seconds)

    def evaluated(stage: str, path: str) -> Callable[[], object]:
        return lambda: evaluate(
            with_policy_path(cfg, path),
            workdir / "eval" / stage,
            progress,
            name=f"evaluate {stage}",
        )

    bc_policy = str(workdir / "bc" / "policy")
    grpo_policy = str(workdir / "grpo" / "policy")
    phase("eval_base", evaluated("base", cfg.policy.path))
    phase("bc", lambda: train_bc(cfg, workdir / "bc", progress))
    phase("eval_bc", evaluated("bc", bc_policy))
    phase("grpo", lambda: train_grpo(with_policy_path(cfg, bc_policy), workdir / "grpo", progress))
    phase("eval_grpo", evaluated("grpo", grpo_policy))
    return _write(workdir, seconds)


def _once(marker: Path, work: Callable[[], object]) -> float:
    """Seconds the work took, when it was done: now, or in an earlier start of the run."""
    if not marker.exists():
        begun = time.monotonic()
        work()
        atomic_files.write_json(marker, {"seconds": time.monotonic() - begun})
    return float(atomic_files.read_json(marker)["seconds"])


def _write(workdir: Path, seconds: dict[str, float]) -> Json:
    """summary.json and report.html as far as the run has got."""
    summary: Json = {}
    for stage in ("base", "bc", "grpo"):
        path = workdir / "eval" / stage / "eval.json"
        if path.exists():
            summary[stage] = atomic_files.read_json(path)
    if "grpo" in summary:
        summary["grpo_minus_bc"] = _paired(summary["grpo"], summary["bc"])
    summary |= {"seconds": seconds, "hardware": run_metadata.hardware()}
    atomic_files.write_json(workdir / "summary.json", summary)
    html.write_report(workdir)
    return summary


def _paired(after: Json, before: Json) -> Json:
    """Difference of success over the tasks that both have a reward for, with its 95 % interval."""
    ours, theirs = (
        {t["task_id"]: t["reward"] for t in one["tasks"] if t["reward"] is not None}
        for one in (after, before)
    )
    found = statistics.paired(ours, theirs)
    return {"difference": found.difference, "ci95": list(found.ci95), "n": found.n}


def table(summary: Json) -> str:
    """What is printed at the end: success by page and stage, and what the training gained."""
    stages = [stage for stage in ("base", "bc", "grpo") if stage in summary]
    sites = sorted(summary[stages[0]]["by_site"])
    width = max(map(len, [*sites, "95 % interval"]))
    lines = [f"{'success, %':<{width}}" + "".join(f"{stage:>14}" for stage in stages)]
    for site in sites:
        rates = (summary[stage]["by_site"].get(site, {}).get("success_rate") for stage in stages)
        cells = ("" if rate is None else f"{100 * rate:.0f}" for rate in rates)
        lines.append(f"{site:<{width}}" + "".join(f"{cell:>14}" for cell in cells))
    overall = (f"{100 * summary[stage]['success_rate']:.1f}" for stage in stages)
    lines.append(f"{'all':<{width}}" + "".join(f"{cell:>14}" for cell in overall))
    intervals = (
        "{:.1f} to {:.1f}".format(*(100 * bound for bound in summary[stage]["ci95"]))
        for stage in stages
    )
    lines.append(f"{'95 % interval':<{width}}" + "".join(f"{cell:>14}" for cell in intervals))
    if "grpo_minus_bc" in summary:
        gain = summary["grpo_minus_bc"]
        low, high = gain["ci95"]
        lines.append(
            f"GRPO - BC: {100 * gain['difference']:+.1f} points "
            f"({100 * low:+.1f} to {100 * high:+.1f}) over {gain['n']} paired episodes"
        )
    minutes = sum(summary["seconds"].values()) / 60
    lines.append(f"{minutes:.1f} minutes on {summary['hardware']['cores']} cores")
    return "\n".join(lines)


def smoke(cfg: RunConfig) -> RunConfig:
    """The same job cut down to a minute, for tests and first looks: its figures mean nothing."""
    replace = dataclasses.replace
    return replace(
        cfg,
        suite=replace(cfg.suite, tasks=cfg.suite.tasks[:2]),
        rollout=replace(cfg.rollout, contexts=4),
        bc=replace(cfg.bc, demos_per_task=2, epochs=1, batch_episodes=4),
        grpo=replace(
            cfg.grpo, updates=1, tasks_per_update=2, group_size=2, minibatches=2, max_refills=0
        ),
        eval=replace(cfg.eval, episodes_per_task=2),
    )
