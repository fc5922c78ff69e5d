"""Success of one set of stored episodes under several label sets of WebArena."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from webagent_jax.config import (
    ConfigError,
    RunConfig,
    WebArenaConfig,
    WebArenaLabels,
    from_config_dict,
)
from webagent_jax.report import tables
from webagent_jax.suites.webarena import rescoring, verified
from webagent_jax.suites.webarena.suite import make_judge, matching_rules
from webagent_jax.tracking import episode_stats, run_metadata
from webagent_jax.tracking.episode_log import EpisodeJournal
from webagent_jax.types import Episode, SuccessRate

Json = dict[str, Any]

LABELS: tuple[WebArenaLabels, ...] = get_args(WebArenaLabels)


@dataclass(frozen=True)
class LabeledEpisodes:
    """Rewards of the episodes of a run under each label set."""

    run_labels: str  # key of the rewards of the run: its label set, or "<label set> of the run"
    episodes: Sequence[Episode]
    rewards: Mapping[str, Sequence[float | None]]  # by label set, in the order of `episodes`
    reasons: Mapping[str, Sequence[str]]  # reason for a missing reward, else empty
    num_reworded: Mapping[str, int]  # scored episodes whose instruction differs from the label's


def rescore(
    run: Path, labels: Sequence[str], overrides: Mapping[str, Any] | None = None
) -> LabeledEpisodes:
    """Score the episodes of an evaluation under further label sets, without a browser.

    Args:
        run: workdir of the evaluation.
        labels: label sets besides that of the run; that of the run is scored again if `overrides`
            change an option.
        overrides: values of options of `suite.webarena` in place of those of the run.

    Raises:
        ConfigError: `run` is not an evaluation of the suite, a label set is unknown or not
            available, an override is not valid, or key, model or path of the judge is wrong.
        InfraError: the scorer of WebArena-Verified fails, or the judge also fails a test request.
    """
    unknown = [name for name in labels if name not in LABELS]
    if unknown or not labels:
        raise ConfigError(f"--labels={','.join(labels)!r} must list some of: {', '.join(LABELS)}")
    suite = _run_config(run).suite
    if suite.name != "webarena_lite" or suite.factory:
        raise ConfigError(f"{run} is a run of {suite.label}: only webarena_lite has label sets")
    # Validates the overrides like options of a config.
    values = {**dataclasses.asdict(suite.webarena), **(overrides or {})}
    options = from_config_dict({"suite": {"webarena": values}}).suite.webarena
    journal = EpisodeJournal(run / "episodes", key=lambda e: (e.task.id, e.attempt))
    episodes = list(journal.load().values())
    if not episodes:
        raise ConfigError(f"{run} has no episodes with a reward: run `webagent evaluate` first")
    run_labels: str = suite.webarena.labels
    if run_labels in labels and options != suite.webarena:
        run_labels += " of the run"
    rewards: dict[str, Sequence[float | None]] = {
        run_labels: [episode.reward for episode in episodes]
    }
    reasons: dict[str, Sequence[str]] = {run_labels: [""] * len(episodes)}
    num_reworded: dict[str, int] = {run_labels: 0}
    for name in LABELS:
        if name in labels and name not in rewards:
            scores, num_reworded[name] = _score(episodes, replace(options, labels=name))
            rewards[name] = [score.reward for score in scores]
            reasons[name] = [score.reason for score in scores]
    return LabeledEpisodes(run_labels, episodes, rewards, reasons, num_reworded)


def _run_config(run: Path) -> RunConfig:
    if not (run / "config.json").is_file():
        raise ConfigError(f"{run} is not a run: pass the --workdir of `webagent evaluate`")
    return run_metadata.read_config(run)


def _score(
    episodes: Sequence[Episode], options: WebArenaConfig
) -> tuple[list[rescoring.Rescore], int]:
    """Return the scores under the labels of `options`, and the number with another instruction."""
    tasks = rescoring.label_tasks(options)
    scores = [rescoring.Rescore(None, "not in the label set")] * len(episodes)
    found = {
        index: (episode, task)
        for index, episode in enumerate(episodes)
        if (task := rescoring.find_label(episode, tasks))
    }
    if options.labels == "verified":
        python = verified.find_installation(options.verified_python).python
        verdicts = rescoring.rescore_verified(python, list(found.values()))
        for index, verdict in zip(found, verdicts, strict=True):
            scores[index] = verdict
    else:
        judge = make_judge(options.judge, os.environ)
        for index, (episode, task) in found.items():
            scores[index] = rescoring.rescore_webarena(
                episode, task, matching_rules(options), judge
            )
            if judge is not None and rescoring.JUDGE_FAILED in scores[index].reason:
                # An endpoint that does not answer at all ends the command.
                judge.check()
    num_reworded = sum(
        scores[index].reward is not None and episode.task.intent != task.intent
        for index, (episode, task) in found.items()
    )
    return scores, num_reworded


# --- report --------------------------------------------------------------------------------------


def report(result: LabeledEpisodes) -> str:
    """Return the table of success rates and the tasks with different verdicts."""
    names = list(result.rewards)
    common = _common_indices(result)
    rate_columns = ["success, %", "95 % interval", "episodes"]
    rows = [["labels", *rate_columns, "not scored", "reworded", "common:", *rate_columns]]
    for name in names:
        scored = _scored_indices(result, name)
        num_missing, num_reworded = len(result.episodes) - len(scored), result.num_reworded[name]
        cells = [*_rate_cells(result, name, scored), str(num_missing), str(num_reworded)]
        rows.append([name, *cells, "", *_rate_cells(result, name, common)])
    lines = [
        tables.grid(rows),
        "not scored: the stored data do not suffice; reworded: the instruction of the episode "
        "differs from that of the label; common: episodes with a score under every label set.",
    ]
    for name in names:
        counts = Counter(reason for reason in result.reasons[name] if reason)
        if counts:
            texts = (f"{count} {reason}" for reason, count in sorted(counts.items()))
            lines.append(f"{name}, not scored: {'; '.join(texts)}")
    differing = [i for i in common if len({result.rewards[name][i] for name in names}) > 1]
    lines.append(f"\n{len(differing)} of {len(common)} common episodes have different verdicts")
    if differing:
        body = [
            [
                _episode_name(result.episodes[i]),
                *(f"{result.rewards[name][i]:.0f}" for name in names),
            ]
            for i in differing
        ]
        lines.append(tables.grid([["episode", *names], *body]))
    return "\n".join(lines)


def to_json(result: LabeledEpisodes) -> Json:
    """Return the content of rescore.json: rates per label set, and verdicts per episode."""
    names = list(result.rewards)
    common = _common_indices(result)
    return {
        "run_labels": result.run_labels,
        "labels": {
            name: {
                "all": _rate_json(result, name, _scored_indices(result, name)),
                "common": _rate_json(result, name, common),
                "reworded": result.num_reworded[name],
            }
            for name in names
        },
        "episodes": [
            {
                "task_id": episode.task.id,
                "attempt": episode.attempt,
                "webarena_id": episode.task.eval.get("webarena_id"),
                "rewards": {name: result.rewards[name][index] for name in names},
                "missing": {
                    name: result.reasons[name][index]
                    for name in names
                    if result.reasons[name][index]
                },
            }
            for index, episode in enumerate(result.episodes)
        ],
    }


def _scored_indices(result: LabeledEpisodes, name: str) -> list[int]:
    return [i for i, reward in enumerate(result.rewards[name]) if reward is not None]


def _common_indices(result: LabeledEpisodes) -> list[int]:
    """Return the indices of the episodes that every label set scores."""
    scored = [set(_scored_indices(result, name)) for name in result.rewards]
    return sorted(set.intersection(*scored))


def _rate(result: LabeledEpisodes, name: str, indices: Sequence[int]) -> SuccessRate:
    rewards = result.rewards[name]
    return episode_stats.rate([replace(result.episodes[i], reward=rewards[i]) for i in indices])


def _rate_json(result: LabeledEpisodes, name: str, indices: Sequence[int]) -> Json:
    return dataclasses.asdict(_rate(result, name, indices))


def _rate_cells(result: LabeledEpisodes, name: str, indices: Sequence[int]) -> list[str]:
    if not indices:
        return ["-", "-", "0"]
    rate = _rate(result, name, indices)
    return [tables.percent(rate.success_rate), tables.interval(rate.ci95), str(rate.n)]


def _episode_name(episode: Episode) -> str:
    return episode.task.id + (f", attempt {episode.attempt}" if episode.attempt else "")
