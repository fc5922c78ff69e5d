"""What the episodes of an evaluation add up to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import numpy as np

from webagent_jax.tracking import statistics
from webagent_jax.types import Episode, EvalReport, Outcome, ParseError, Rate


def summarize(
    episodes: Sequence[Episode],
    seconds: float,
    *,
    max_turns: Sequence[int] = (),
    busy: Mapping[str, float] | None = None,
    usage: Mapping[str, float | None] | None = None,
) -> EvalReport:
    """The figures of an evaluation. INFRA episodes are counted as such and nowhere else.

    Args:
        episodes: all of them; attempts at a task share its id.
        seconds: that they took, played side by side.
        max_turns: limits to tell success at; they were played under the longest.
        busy: share of that time by who was busy.
        usage: of an endpoint.
    """
    scored = [episode for episode in episodes if episode.reward is not None]
    turns = [turn for episode in scored for turn in episode.turns]
    tries = statistics.spread([len(episode.turns) for episode in scored])
    tokens = statistics.spread([len(turn.completion.token_ids) for turn in turns])
    sites = dict.fromkeys(site(episode) for episode in scored)
    overall = rate(scored)
    most = max(Counter(episode.task.id for episode in episodes).values(), default=1)
    return EvalReport(
        success_rate=overall.success_rate,
        n=overall.n,
        ci95=overall.ci95,
        by_site={name: rate([e for e in scored if site(e) == name]) for name in sites},
        by_outcome=Counter(str(episode.outcome) for episode in episodes),
        mean_turns=tries.mean,
        mean_response_tokens=tokens.mean,
        seconds=seconds,
        episodes=tuple(episodes),
        attempts=most,
        pass_at_k={k: pass_at(scored, k) for k in range(1, most + 1)},
        by_max_turns={limit: rate_within(scored, limit) for limit in sorted(set(max_turns))},
        turns=tries,
        response_tokens=tokens,
        episode_seconds=statistics.spread([episode.seconds for episode in scored]),
        parse_error_rate=sum(map(parse_errors, scored)) / max(len(turns), 1),
        invalid_action_rate=sum(map(invalid_actions, scored)) / max(len(turns), 1),
        busy=busy or {},
        usage=usage or {},
    )


def rate(
    episodes: Sequence[Episode], solved: Callable[[Episode], bool] = lambda e: bool(e.reward)
) -> Rate:
    """Mean over tasks of the share of their attempts that succeeded.

    The interval is Wilson's, or where tasks were attempted several times a bootstrap over tasks.
    """
    by_task = [[solved(episode) for episode in of_task] for of_task in _by_task(episodes)]
    rates = [sum(attempts) / len(attempts) for attempts in by_task]
    if len(rates) == len(episodes):
        ci95 = statistics.wilson(sum(solved(episode) for episode in episodes), len(episodes))
    else:
        ci95 = statistics.bootstrap(rates)
    return Rate(float(np.mean(rates)) if rates else 0.0, len(episodes), ci95)


def rate_within(episodes: Sequence[Episode], max_turns: int) -> Rate:
    """Success as it would have been with a shorter turn limit, read off the same episodes.

    Sampling is greedy or seeded by turn, so the shorter episode is the beginning of the longer one,
    and one that took at most `max_turns` is the very same. Of a longer one it is not known how the
    world would have been judged at the limit: it counts as unsolved. That is exact where a success
    ends its episode (MiniWoB++); where an agent has to say that it is done, a page that was right
    by then is missed, so that figures below the longest limit are lower bounds.
    """
    return rate(episodes, lambda e: bool(e.reward) and len(e.turns) <= max_turns)


def pass_at(episodes: Sequence[Episode], k: int) -> Rate:
    """Mean over tasks of pass@k, with a bootstrap interval; n is how many tasks have k attempts."""
    values = [
        statistics.pass_at_k(sum(bool(e.reward) for e in of_task), len(of_task), k)
        for of_task in _by_task(episodes)
        if len(of_task) >= k
    ]
    mean = float(np.mean(values)) if values else 0.0
    return Rate(mean, len(values), statistics.bootstrap(values))


def site(episode: Episode) -> str:
    """What success is reported by."""
    return ",".join(episode.task.sites)


def infra(episodes: Sequence[Episode]) -> list[Episode]:
    """Those left without a reward."""
    return [episode for episode in episodes if episode.outcome is Outcome.INFRA]


def parse_errors(episode: Episode) -> int:
    """Turns whose reply holds no readable action."""
    return sum(isinstance(turn.action, ParseError) for turn in episode.turns)


def invalid_actions(episode: Episode) -> int:
    """Turns whose action could be read and led to an error; what the last one led to is unknown."""
    return sum(
        after.observation.error is not None and not isinstance(turn.action, ParseError)
        for turn, after in pairwise(episode.turns)
    )


def browser_seconds(episodes: Sequence[Episode]) -> float:
    """Of starting worlds and acting in them, all contexts together."""
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
