"""Scores of stored episodes under another label set, without a browser where the data suffice.

| label | needs |
|---|---|
| answer (`string_match`, RETRIEVE tasks of WebArena-Verified) | the episode |
| final address (`url_match`) | the final address, stored with the network log |
| requests (NAVIGATE and MUTATE tasks of WebArena-Verified) | the network log |
| page contents (`program_html`) | the live site: only failures of other parts are known |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from webagent_jax.config import ConfigError, WebArenaConfig
from webagent_jax.suites import evaluators, task_file
from webagent_jax.suites.judge import Judge
from webagent_jax.suites.matching import MatchingRules
from webagent_jax.suites.webarena import catalog, verified
from webagent_jax.types import Episode, InfraError, Task

JUDGE_FAILED = "judge failed"


@dataclass(frozen=True)
class Rescore:
    """Score of an episode under a label set."""

    reward: float | None  # 0 or 1; None if the stored data do not suffice
    reason: str = ""  # missing data if there is no reward


class NotStoredError(InfraError):
    """An evaluator needs the live site."""


def label_tasks(config: WebArenaConfig) -> dict[int, Task]:
    """Return the tasks of a label set by their number in WebArena.

    Args:
        config: label set and its files.

    Raises:
        ConfigError: a file or the package is missing.
    """
    if config.labels == "verified":
        # Every task, because the episodes may be of another split.
        tasks = verified.read_tasks(replace(config, verified_split="verified"))
    else:
        file = catalog.test_source(config)
        if not file:
            raise ConfigError("labels=original needs the task file with them: set --test_file=FILE")
        tasks = catalog.load_file(file, catalog.configured_addresses(config))
    return {task.eval["webarena_id"]: task for task in tasks if "webarena_id" in task.eval}


def find_label(episode: Episode, tasks: Mapping[int, Task]) -> Task | None:
    """Return the task of a label set that an episode attempted; None if the set lacks it.

    Files of other tasks may use the same numbers, so the sites must be the same too, and the
    template if both files have it: WebArena-Lite-v2's has none.
    """
    attempted = episode.task
    task = tasks.get(attempted.eval.get("webarena_id", -1))
    if task is None or set(task.sites) != set(attempted.sites):
        return None
    templates = {task.template, attempted.template} - {""}
    return task if len(templates) < 2 else None


def rescore_verified(python: str, pairs: Sequence[tuple[Episode, Task]]) -> list[Rescore]:
    """Return the scores of episodes under the labels of WebArena-Verified.

    Args:
        python: interpreter that has the package.
        pairs: episodes with their tasks in the label set.

    Raises:
        InfraError: the program of the package fails.
    """
    requests = []
    for episode, task in pairs:
        spec, log = task.eval, episode.files.get(verified.NETWORK_FILE)
        addresses, _ = _stored_sites(episode)
        requests.append(
            verified.ScoreRequest(
                spec["webarena_id"],
                # Labels of answers alone need no address, but the package requires one.
                addresses or {site: f"http://{site}.invalid" for site in task.sites},
                verified.agent_response(episode.answer, spec["task_type"], spec["item_type"]),
                verified.har_entries(log) if log else None,
            )
        )
    return [
        Rescore(verdict.score, "" if verdict.score is not None else "no network log")
        for verdict in verified.score(python, requests)
    ]


def rescore_webarena(
    episode: Episode, task: Task, rules: MatchingRules, judge: Judge | None
) -> Rescore:
    """Return the score of an episode under labels in the format of WebArena.

    Evaluators that need the live site, or whose judge is missing or fails, are skipped: if another
    part fails, so does the episode; otherwise there is no reward.

    Args:
        episode: stored episode.
        task: its task in the label set, with placeholder addresses.
        rules: text comparison of the label set.
        judge: judge of fuzzy references; None if there is none.

    Raises:
        ConfigError: key, model or address of the judge is wrong.
    """
    addresses, final_url = _stored_sites(episode)
    if addresses:
        task = task_file.with_addresses(task, addresses)
    state = _StoredState(final_url)
    reasons = []
    for name in task.eval["eval_types"]:
        part = replace(task, eval={**task.eval, "eval_types": [name]})
        try:
            if not evaluators.score(part, episode.answer, state, judge, rules):
                return Rescore(0.0)
        except NotStoredError as error:
            reasons.append(str(error))
        except evaluators.NoJudgeError:
            reasons.append("no judge")
        except InfraError as error:
            reasons.append(f"{JUDGE_FAILED}: {error}")
    return Rescore(None, ", ".join(dict.fromkeys(reasons))) if reasons else Rescore(1.0)


def _stored_sites(episode: Episode) -> tuple[dict[str, str], str | None]:
    """Return the addresses of an episode and its final address; nothing without the file."""
    content = episode.files.get(verified.SITES_FILE)
    return verified.read_sites_file(content) if content else ({}, None)


class _StoredState:
    """`evaluators.SiteState` that contains the final address only."""

    def __init__(self, final_url: str | None) -> None:
        self._final_url = final_url

    def url(self) -> str:
        if self._final_url is None:
            raise NotStoredError("no final address")
        return self._final_url

    def goto(self, url: str) -> None:
        raise NotStoredError("page contents")

    def evaluate(self, script: str) -> Any:
        raise NotStoredError("page contents")

    def address(self, site: str) -> str:
        raise NotStoredError("page contents")

    def shop_json(self, path: str) -> Any:
        raise NotStoredError("page contents")
