"""Full pipeline: behavior cloning and M-GRPO, with an evaluation before and after each."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from webagent_jax.collect_demos import check_num_demos
from webagent_jax.config import ConfigError, RunConfig
from webagent_jax.evaluate import evaluate
from webagent_jax.policy import prompt_record
from webagent_jax.policy.loading import require_local_policy, with_policy_path
from webagent_jax.report import comparison, html
from webagent_jax.tracking import atomic_files, run_metadata, statistics
from webagent_jax.tracking.progress import Progress
from webagent_jax.tracking.workdir_lock import hold_lock
from webagent_jax.train import bc
from webagent_jax.train.grpo import check_sampling, train_grpo
from webagent_jax.types import Outcome

Json = dict[str, Any]


def quickstart(cfg: RunConfig, workdir: Path, progress: Progress) -> Json:
    """Run the remaining phases and return the content of summary.json.

    Writes bc/, grpo/, eval/base, eval/bc, eval/grpo (each of them a workdir), summary.json and
    report.html. A call after an interruption resumes the run.
    """
    _check_phases(cfg)
    cfg = prompt_record.with_template(cfg)
    run_metadata.init_workdir(workdir, cfg, "quickstart")
    progress.plan(_expected_work(cfg))
    seconds: dict[str, float] = {}

    def run_phase(name: str, folder: Path, work: Callable[[Path], object]) -> None:
        seconds[name] = _run_phase(workdir / "phases" / f"{name}.json", folder, work)
        # After every phase, so an unfinished run has a report.
        _write(workdir, seconds)

    def evaluation(path: str) -> Callable[[Path], bool]:
        def run_evaluation(folder: Path) -> bool:
            report = evaluate(
                with_policy_path(cfg, path), folder, progress, name=f"evaluate {folder.name}"
            )
            # The next call retries the episodes without a reward.
            return not report.by_outcome.get(str(Outcome.INFRA))

        return run_evaluation

    bc_policy = str(workdir / "bc" / "policy")
    grpo_policy = str(workdir / "grpo" / "policy")
    run_phase("eval_base", workdir / "eval" / "base", evaluation(cfg.policy.path))
    run_phase("bc", workdir / "bc", lambda folder: bc.train_bc(cfg, folder, progress))
    run_phase("eval_bc", workdir / "eval" / "bc", evaluation(bc_policy))
    run_phase(
        "grpo",
        workdir / "grpo",
        lambda folder: train_grpo(with_policy_path(cfg, bc_policy), folder, progress),
    )
    run_phase("eval_grpo", workdir / "eval" / "grpo", evaluation(grpo_policy))
    return _write(workdir, seconds)


def _check_phases(cfg: RunConfig) -> None:
    """Check the config for BC and M-GRPO, which would reject it only after earlier phases.

    Raises:
        ConfigError: a phase does not support an option.
    """
    require_local_policy(cfg)
    check_num_demos(cfg)
    check_sampling(cfg)
    if cfg.lora.rank and not cfg.lora.create_new_adapter:
        raise ConfigError(
            "the quickstart does not support lora.create_new_adapter=False: run `webagent train "
            "bc` and `webagent train grpo`, or omit the option"
        )


def _expected_work(cfg: RunConfig) -> dict[str, float]:
    """Return the expected duration of each phase, in episodes of an evaluation."""
    # Without names, the suite is complete: 60 to 165 test tasks.
    num_tasks = len(cfg.suite.tasks) or 100
    evaluation = float(num_tasks * cfg.eval.seeds_per_task * cfg.eval.attempts)
    episodes = cfg.grpo.updates * cfg.grpo.tasks_per_update * cfg.grpo.group_size
    cloning = {name: num_tasks * work for name, work in bc.expected_work(cfg).items()}
    return {
        "evaluate base": evaluation,
        **cloning,
        "evaluate bc": evaluation,
        # Includes replacement groups and train steps, as measured by the quickstart in
        # docs/results.md. Only the estimate of the remaining time depends on it.
        "M-GRPO": 1.5 * episodes,
        "evaluate grpo": evaluation,
    }


def _run_phase(record_file: Path, folder: Path, work: Callable[[Path], object]) -> float:
    """Run a phase unless its record says that it is complete, and return its seconds.

    An interrupted phase runs again and resumes by itself; its seconds are those of all calls.

    Args:
        record_file: record of the phase.
        folder: workdir of the phase, whose lock is held during the phase.
        work: runs the phase in the folder; returns False if it is not complete, although it ended.

    Raises:
        ConfigError: another process writes to the folder.
    """
    record: Json = {"seconds": 0.0, "is_complete": False}
    if record_file.exists():
        record = atomic_files.read_json(record_file)
    if not record["is_complete"]:
        # Other commands with this workdir check its lock, not that of the quickstart.
        with hold_lock(folder):
            previous, start = record["seconds"], time.monotonic()
            try:
                record["is_complete"] = work(folder) is not False
            finally:
                record["seconds"] = previous + time.monotonic() - start
                atomic_files.write_json(record_file, record)
    return float(record["seconds"])


def _write(workdir: Path, seconds: dict[str, float]) -> Json:
    """Write summary.json and report.html of the completed phases, and return the summary."""
    summary: Json = {}
    for stage in ("base", "bc", "grpo"):
        path = workdir / "eval" / stage / "eval.json"
        if path.exists():
            summary[stage] = atomic_files.read_json(path)
    if "grpo" in summary:
        summary["grpo_minus_bc"] = _paired_difference(summary["grpo"], summary["bc"])
    summary |= {"seconds": seconds, "hardware": run_metadata.hardware()}
    atomic_files.write_json(workdir / "summary.json", summary)
    html.write_report(workdir)
    return summary


def _paired_difference(candidate: Json, baseline: Json) -> Json:
    """Return the success difference over tasks with a reward in both, and its 95 % interval."""
    result = statistics.compare_paired(
        comparison.first_rewards(candidate), comparison.first_rewards(baseline)
    )
    return {"difference": result.difference, "ci95": list(result.ci95), "n": result.n}
