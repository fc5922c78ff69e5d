"""Summary statistics of evaluation episodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import numpy as np

from webagent_jax.tracking import statistics
from webagent_jax.types import (
    DIALOG_PREFIX,
    Episode,
    EvalReport,
    Observation,
    Outcome,
    ParseError,
    SuccessRate,
)


def summarize(
    episodes: Sequence[Episode],
    seconds: float,
    *,
    max_turns: Sequence[int] = (),
    utilization: Mapping[str, float] | None = None,
    usage: Mapping[str, float | None] | None = None,
) -> EvalReport:
    """Return the report of an evaluation; INFRA episodes count in `by_outcome` only.

    Args:
        episodes: all episodes; attempts at a task share its id.
        seconds: wall-clock time of the evaluation.
        max_turns: turn limits to report success at; the episodes ran under the largest.
        utilization: utilization in [0, 1] by component.
        usage: tokens and cost of an endpoint.
    """
    scored_episodes = [episode for episode in episodes if episode.reward is not None]
    turns = [turn for episode in scored_episodes for turn in episode.turns]
    turn_stats = statistics.summary_stats([len(episode.turns) for episode in scored_episodes])
    token_stats = statistics.summary_stats([len(turn.completion.token_ids) for turn in turns])
    sites = dict.fromkeys(site(episode) for episode in scored_episodes)
    total = rate(scored_episodes)
    # All episodes count, because a task may have lost attempts to INFRA.
    attempts = max(Counter(episode.task.id for episode in episodes).values(), default=1)
    return EvalReport(
        success_rate=total.success_rate,
        n=total.n,
        ci95=total.ci95,
        by_site={name: rate([e for e in scored_episodes if site(e) == name]) for name in sites},
        by_outcome=Counter(str(episode.outcome) for episode in episodes),
        mean_turns=turn_stats.mean,
        mean_response_tokens=token_stats.mean,
        seconds=seconds,
        episodes=tuple(episodes),
        attempts=attempts,
        pass_at_k={k: pass_at_k(scored_episodes, k) for k in range(1, attempts + 1)},
        by_max_turns={
            limit: success_within_turns(scored_episodes, limit) for limit in sorted(set(max_turns))
        },
        turns=turn_stats,
        response_tokens=token_stats,
        episode_seconds=statistics.summary_stats([episode.seconds for episode in scored_episodes]),
        parse_error_rate=sum(map(parse_errors, scored_episodes)) / max(len(turns), 1),
        invalid_action_rate=sum(map(invalid_actions, scored_episodes)) / max(len(turns), 1),
        utilization=utilization or {},
        usage=usage or {},
    )


def rate(
    episodes: Sequence[Episode], is_solved: Callable[[Episode], bool] = lambda e: bool(e.reward)
) -> SuccessRate:
    """Return the mean over tasks of the fraction of successful attempts.

    The interval is Wilson's; with several attempts per task it is a bootstrap over tasks.
    """
    by_task = [
        [is_solved(episode) for episode in task_episodes] for task_episodes in _by_task(episodes)
    ]
    rates = [sum(attempts) / len(attempts) for attempts in by_task]
    # One attempt per task: outcomes are independent and 0 or 1, as Wilson's interval requires.
    if len(rates) == len(episodes):
        ci95 = statistics.wilson(sum(is_solved(episode) for episode in episodes), len(episodes))
    else:
        ci95 = statistics.bootstrap(rates)
    return SuccessRate(float(np.mean(rates)) if rates else 0.0, len(episodes), ci95)


def success_within_turns(episodes: Sequence[Episode], max_turns: int) -> SuccessRate:
    """Return the success rate under a shorter turn limit, computed from the same episodes.

    Sampling is greedy or seeded by turn, so an episode under the shorter limit is a prefix of the
    longer one. An episode of at most `max_turns` turns is unchanged; a longer one counts as
    unsolved. This is exact if success ends the episode (MiniWoB++). If the agent has to end it, the
    page may already be correct at the limit, so rates below the largest limit are lower bounds.
    """
    return rate(episodes, lambda e: bool(e.reward) and len(e.turns) <= max_turns)


def pass_at_k(episodes: Sequence[Episode], k: int) -> SuccessRate:
    """Return mean pass@k and its bootstrap interval over the n tasks with at least k attempts."""
    values = [
        statistics.pass_at_k(sum(bool(e.reward) for e in attempts), len(attempts), k)
        for attempts in _by_task(episodes)
        if len(attempts) >= k
    ]
    mean = float(np.mean(values)) if values else 0.0
    return SuccessRate(mean, len(values), statistics.bootstrap(values))


def site(episode: Episode) -> str:
    """Return the site that the success rate of an episode is reported under."""
    return ",".join(episode.task.sites)


def infra_episodes(episodes: Sequence[Episode]) -> list[Episode]:
    """Return the episodes without a reward."""
    return [episode for episode in episodes if episode.outcome is Outcome.INFRA]


def parse_errors(episode: Episode) -> int:
    """Return the number of turns whose response contains no valid action."""
    return sum(isinstance(turn.action, ParseError) for turn in episode.turns)


def invalid_actions(episode: Episode) -> int:
    """Return the number of parsed actions that led to an error; the last turn is not counted."""
    return sum(
        # The error of an action is part of the next observation.
        has_action_error(next_turn.observation) and not isinstance(turn.action, ParseError)
        for turn, next_turn in pairwise(episode.turns)
    )


def has_action_error(observation: Observation) -> bool:
    """Return whether the previous action led to an error; the text of a dialog alone is none."""
    # The error of the action precedes the texts of dialogs.
    error = observation.error
    return error is not None and not error.startswith(DIALOG_PREFIX)


def browser_seconds(episodes: Sequence[Episode]) -> float:
    """Return the seconds spent in resets and browser actions, summed over all contexts."""
    return sum(
        turn.seconds.get(phase, 0.0)
        for episode in episodes
        for turn in episode.turns
        for phase in ("start", "browser")
    )


def _by_task(episodes: Sequence[Episode]) -> list[list[Episode]]:
    tasks: dict[str, list[Episode]] = {}
    for episode in episodes:
        tasks.setdefault(episode.task.id, []).append(episode)
    return list(tasks.values())
