"""Audit of episodes: kinds of invalid behavior that an episode shows, at any reward."""

from __future__ import annotations

import enum
from collections import Counter

from webagent_jax.tracking import episode_stats
from webagent_jax.types import Action, ActionKind, Episode

LOOP_TURNS = 3  # minimum number of turns with the same action on the same page


class Finding(enum.StrEnum):
    """Kinds of invalid behavior; docs/evaluation.md defines them."""

    LOOP = "loop"
    PREMATURE = "premature"
    UNPARSABLE = "unparsable"
    REFUSED = "refused"
    TRUNCATED = "truncated"


DESCRIPTIONS = {
    Finding.LOOP: f"the same action on the same page in {LOOP_TURNS} or more turns",
    Finding.PREMATURE: "the agent ended the episode, but the task was not solved",
    Finding.UNPARSABLE: "a response without a valid action",
    Finding.REFUSED: "a valid action that the page or the browser refused",
    Finding.TRUNCATED: "the turn or token limit ended the episode",
}
"""Definitions of the findings for the report."""


def find_invalid(episode: Episode) -> list[Finding]:
    """Return the findings of an episode in the order of `Finding`.

    An episode without a reward has none, because the infrastructure failed.
    """
    if episode.reward is None:
        return []
    is_finding = {
        Finding.LOOP: _max_repetitions(episode) >= LOOP_TURNS,
        Finding.PREMATURE: _ends_with_exit(episode) and not episode.reward,
        Finding.UNPARSABLE: episode_stats.parse_errors(episode) > 0,
        Finding.REFUSED: episode_stats.invalid_actions(episode) > 0,
        Finding.TRUNCATED: episode.truncated,
    }
    return [finding for finding, is_present in is_finding.items() if is_present]


def _max_repetitions(episode: Episode) -> int:
    """Return the largest number of turns that share page and action, even if not consecutive."""
    counts = Counter(
        (turn.observation.url, turn.observation.text, turn.action)
        for turn in episode.turns
        # An unparsable response has no action, and is a finding of its own.
        if isinstance(turn.action, Action)
    )
    return max(counts.values(), default=0)


def _ends_with_exit(episode: Episode) -> bool:
    last = episode.turns[-1].action if episode.turns else None
    return isinstance(last, Action) and last.kind is ActionKind.EXIT
