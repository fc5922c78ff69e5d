"""Tests of the audit of episodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest

from tests.report.conftest import make_episode, make_observation
from webagent_jax import types
from webagent_jax.report import audit
from webagent_jax.report.audit import Finding
from webagent_jax.types import Action, ActionKind, Episode, Observation, Outcome, ParseError

CLICK = Action(ActionKind.CLICK, "1")
OTHER_CLICK = Action(ActionKind.CLICK, "2")
EXIT = Action(ActionKind.EXIT, value="42")
UNPARSABLE = ParseError("the reply holds no action")
PAGE = make_observation(2, 0)
OTHER_PAGE = make_observation(2, 1)
FAILED_PAGE = dataclasses.replace(PAGE, error="no such element")
ALERT_PAGE = dataclasses.replace(PAGE, error="the page said: Saved; the page said: Sure?")
FAILED_ALERT_PAGE = dataclasses.replace(PAGE, error="no such element; the page said: Saved")


def make(turns: Sequence[tuple[Observation, Action | ParseError]], **fields: object) -> Episode:
    """Return an episode without other findings; `fields` replace those of a failed episode."""
    episode = make_episode("miniwob/login-user/1", success=True, with_screenshots=False)
    fields = {"reward": 0.0, "outcome": Outcome.FAILURE} | fields
    made = [
        dataclasses.replace(episode.turns[0], observation=observation, action=action)
        for observation, action in turns
    ]
    return dataclasses.replace(episode, turns=tuple(made), **fields)


@pytest.mark.parametrize(
    ("turns", "findings"),
    [
        ([], []),
        ([(PAGE, CLICK), (PAGE, CLICK), (OTHER_PAGE, OTHER_CLICK)], []),
        # The turns need not be consecutive, and the error of a page is not part of its text.
        ([(PAGE, CLICK), (OTHER_PAGE, CLICK), (PAGE, CLICK), (PAGE, CLICK)], [Finding.LOOP]),
        ([(PAGE, CLICK), (OTHER_PAGE, CLICK), (PAGE, OTHER_CLICK)] * 2, []),
        ([(PAGE, CLICK), (OTHER_PAGE, EXIT)], [Finding.PREMATURE]),
        # An exit that is not last did not end the episode.
        ([(PAGE, EXIT), (OTHER_PAGE, CLICK)], []),
        ([(PAGE, UNPARSABLE), (PAGE, CLICK)], [Finding.UNPARSABLE]),
        ([(PAGE, UNPARSABLE)] * 3, [Finding.UNPARSABLE]),
        ([(PAGE, CLICK), (FAILED_PAGE, OTHER_CLICK)], [Finding.REFUSED]),
        ([(FAILED_PAGE, CLICK)], []),
        # The text of a dialog is not an error of the action.
        ([(PAGE, CLICK), (ALERT_PAGE, OTHER_CLICK)], []),
        ([(PAGE, CLICK), (FAILED_ALERT_PAGE, OTHER_CLICK)], [Finding.REFUSED]),
        # An unparsable response is not an action that was refused.
        ([(PAGE, UNPARSABLE), (FAILED_PAGE, CLICK)], [Finding.UNPARSABLE]),
        (
            [(PAGE, UNPARSABLE), (PAGE, CLICK), (FAILED_PAGE, CLICK), (PAGE, CLICK), (PAGE, EXIT)],
            [Finding.LOOP, Finding.PREMATURE, Finding.UNPARSABLE, Finding.REFUSED],
        ),
    ],
)
def test_findings_of_turns(
    turns: Sequence[tuple[Observation, Action | ParseError]], findings: list[Finding]
) -> None:
    assert audit.find_invalid(make(turns)) == findings


def test_exit_of_solved_task_is_not_premature() -> None:
    solved = make([(PAGE, EXIT)], reward=1.0, outcome=Outcome.SUCCESS)
    assert audit.find_invalid(solved) == []


def test_truncated_episode_is_found_at_any_reward() -> None:
    for reward, outcome in ((0.0, Outcome.TRUNCATED), (1.0, Outcome.SUCCESS)):
        episode = make([(PAGE, CLICK)], reward=reward, outcome=outcome, truncated=True)
        assert audit.find_invalid(episode) == [Finding.TRUNCATED]


def test_episode_without_reward_has_no_findings() -> None:
    failed = make([(PAGE, CLICK)] * 3, reward=None, outcome=types.Outcome.INFRA, truncated=True)
    assert audit.find_invalid(failed) == []


def test_every_finding_has_a_description() -> None:
    assert list(audit.DESCRIPTIONS) == list(Finding)
