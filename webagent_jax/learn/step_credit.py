"""Advantages of single turns in a group whose episodes visit the same pages.

The episodes of a group start on the same page, and often meet again on later ones. There, turns
that lead toward a success are compared with those that lead away from it, as in GiGPO
(arXiv 2505.10978). The value of a page is its distance to a success in the graph of all pages of
the group, as in GraphGPO (arXiv 2605.26684).
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict, deque
from collections.abc import Sequence

import numpy as np

from webagent_jax.types import Episode, FloatArray, Turn

State = tuple[str, str]
"""URL without its host, and text of a page; ("", "success") and others below end episodes."""

_HOST = re.compile(r"^[a-z]+://[^/?#]*")

_SUCCESS: State = ("", "success")
_FAILURE: State = ("", "failure")
_UNOBSERVED: State = ("", "unobserved")


def step_advantages(episodes: Sequence[Episode], *, discount: float) -> list[FloatArray]:
    """Return the advantage of each turn over the other turns of the group on the same page.

        Q_ij = discount ^ d(s_i,j+1)
        A_ij = Q_ij - mean of Q over all turns of the group on page s_ij

    s_ij is the page before turn j of episode i. d is the number of turns of the shortest path from
    a page to a success, over the transitions of all episodes; 0 for the success itself. Pages from
    which no path leads there have Q = 0.

    The page after the last turn of a truncated episode without success is not observed. That turn
    does not count in the mean, and its advantage is 0.

    Args:
        episodes: episodes of one group with a reward.
        discount: factor per turn, in (0, 1].

    Returns:
        For each episode, advantages [T]; 0 on a page that has only one turn.
    """
    paths = [[*map(_state, episode.turns), _end(episode)] for episode in episodes]
    distances = _distances(paths)
    # Q [T] of the turns of each episode, and the values of Q on each page.
    values = [
        [discount ** distances[page] if page in distances else 0.0 for page in path[1:]]
        for path in paths
    ]
    by_page: dict[State, list[float]] = defaultdict(list)
    for path, each in zip(paths, values, strict=True):
        for (page, following), value in zip(itertools.pairwise(path), each, strict=True):
            if following != _UNOBSERVED:
                by_page[page].append(value)
    means = {page: float(np.mean(each)) for page, each in by_page.items()}
    advantages = []
    for path, each in zip(paths, values, strict=True):
        baseline = np.asarray([means.get(page, 0.0) for page in path[:-1]], np.float32)
        advantages.append(np.asarray(each, np.float32) - baseline)
        if path[-1] == _UNOBSERVED:
            advantages[-1][-1:] = 0.0
    return advantages


def num_compared_turns(episodes: Sequence[Episode]) -> int:
    """Return the number of turns on pages on which the group has two or more different actions."""
    actions: dict[State, list[str]] = defaultdict(list)
    for episode in episodes:
        for turn in episode.turns:
            actions[_state(turn)].append(repr(turn.action))
    return sum(len(each) for each in actions.values() if len(set(each)) > 1)


def _state(turn: Turn) -> State:
    # Without the host: each attempt may have its own, of its world or of its replica. And without
    # the error of the last action: a refused action leads back to the same page.
    return _HOST.sub("//", turn.observation.url), turn.observation.text


def _end(episode: Episode) -> State:
    """Return the state after the last turn."""
    if episode.reward == 1:
        return _SUCCESS
    return _UNOBSERVED if episode.truncated else _FAILURE


def _distances(paths: Sequence[Sequence[State]]) -> dict[State, int]:
    """Return the number of turns from each page to a success; pages without a path are missing."""
    predecessors: dict[State, set[State]] = defaultdict(set)
    for path in paths:
        for state, following in itertools.pairwise(path):
            predecessors[following].add(state)
    distances = {_SUCCESS: 0}
    queue = deque([_SUCCESS])
    while queue:
        state = queue.popleft()
        for previous in predecessors[state]:
            if previous not in distances:
                distances[previous] = distances[state] + 1
                queue.append(previous)
    return distances
