"""Success rates on held-out tasks."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from webagent_jax import seeds
from webagent_jax.config import RunConfig
from webagent_jax.report import files, html, provenance, statistics, store
from webagent_jax.report.progress import NullProgress, Progress
from webagent_jax.rollout import Job
from webagent_jax.seeds import Stream
from webagent_jax.stage import Stage, load_policy
from webagent_jax.types import Episode, EvalReport, Outcome, PolicySnapshot, Rate


def evaluate(
    cfg: RunConfig, workdir: Path, progress: Progress | None = None, *, name: str = "evaluation"
) -> EvalReport:
    """Plays `eval.episodes_per_task` worlds of every held-out task with the policy of the config.

    Which tasks they are does not depend on the seed of the run. Writes eval.json, episodes/ and
    report.html. Goes on where it stopped: episodes that `workdir` holds are not played again.

    Raises:
        ConfigError: the workdir holds a run with another config.
    """
    progress = progress or NullProgress()
    provenance.open_workdir(workdir, cfg)
    begun = time.monotonic()
    log = workdir / "episodes" / "episodes.jsonl"
    model, params = load_policy(cfg)
    with Stage(cfg, progress, model, PolicySnapshot(0, params)) as stage:
        jobs = _jobs(cfg, stage)
        known = {e.task.id: e for e in store.load_episodes(log) if e.reward is not None}
        progress.phase(name, len(jobs), "episodes", done=len(known))

        def keep(episode: Episode) -> None:
            store.append_episodes(log, [episode])
            progress.advance()

        fresh = stage.play([job for job in jobs if job.task.id not in known], keep)
        known |= {episode.task.id: episode for episode in fresh}
        episodes = [known[job.task.id] for job in jobs]
    report = summarize(episodes, time.monotonic() - begun)
    files.write_json(workdir / "eval.json", store.eval_json(report, cfg, provenance.commit()))
    html.write_report(workdir)
    return report


def _jobs(cfg: RunConfig, stage: Stage) -> list[Job]:
    """The same tasks for every policy and every seed; the first of each with pictures."""
    jobs = []
    for index in range(cfg.eval.episodes_per_task):
        rules = stage.rules(cfg.eval.max_turns, pictures=index < cfg.eval.pictures_per_task)
        for number, name in enumerate(stage.suite.names("test")):
            jobs.append(
                Job(
                    stage.suite.task(name, "test", index),
                    seeds.derive(cfg.seed, Stream.EVALUATION, number, index),
                    rules,
                    lambda: stage.policy_agent(cfg.eval.temperature),
                )
            )
    return jobs


def summarize(episodes: Sequence[Episode], seconds: float) -> EvalReport:
    """The figures of an evaluation. INFRA episodes are counted as such and nowhere else."""
    scored = [e for e in episodes if e.reward is not None]
    rewards = np.asarray([e.reward for e in scored], float)
    turns = [turn for e in scored for turn in e.turns]
    sites = [",".join(e.task.sites) for e in scored]
    return EvalReport(
        success_rate=float(rewards.mean()) if scored else 0.0,
        n=len(scored),
        ci95=statistics.wilson(int(rewards.sum()), len(scored)),
        by_site={
            site: Rate(
                float(np.mean([r for r, s in zip(rewards, sites, strict=True) if s == site])),
                sites.count(site),
            )
            for site in dict.fromkeys(sites)
        },
        by_outcome=Counter(str(e.outcome) for e in episodes),
        mean_turns=len(turns) / max(len(scored), 1),
        mean_response_tokens=(
            float(np.mean([len(t.completion.token_ids) for t in turns])) if turns else 0.0
        ),
        seconds=seconds,
        episodes=tuple(episodes),
    )


def by_outcome_line(report: EvalReport) -> str:
    """`success 41.2% of 400 (36.5 to 46.1)`, with what else there was to say."""
    low, high = report.ci95
    infra = report.by_outcome.get(str(Outcome.INFRA), 0)
    line = f"success {report.success_rate:.1%} of {report.n} ({low:.1%} to {high:.1%})"
    return f"{line}, {infra} INFRA" if infra else line
