"""Alarms, and when they end a run."""

from __future__ import annotations

import pytest

from webagent_jax.config import GuardConfig
from webagent_jax.train.metrics import Guards, GuardTripped

GOOD = {
    "entropy": 0.5,
    "kl": 0.01,
    "sampling_logp_difference": 1e-6,
    "turns/repeated_fraction": 0.1,
}
CFG = GuardConfig(
    min_entropy=0.1, max_kl=1.0, max_logp_difference=0.01, max_repetition=0.5, patience=2
)


def test_a_good_update_says_nothing():
    guards = Guards(CFG)
    assert guards.check(1, GOOD) == []
    assert guards.all_within_limits


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("entropy", "min_entropy", 0.05),
        ("kl", "max_kl", 2.0),
        ("sampling_logp_difference", "max_logp_difference", 0.1),
        ("turns/repeated_fraction", "max_repetition", 0.6),
    ],
)
def test_a_limit_warns_and_then_stops(name, option, value):
    guards = Guards(CFG)
    bad = GOOD | {name: value}
    (warning,) = guards.check(7, bad)
    assert warning.startswith(f"update 7: {name} {value:.3g} is ")
    assert not guards.all_within_limits
    with pytest.raises(GuardTripped, match=rf"after update 8: {name} .*guard\.{option}"):
        guards.check(8, bad)


def test_a_good_update_between_begins_the_count_anew():
    guards = Guards(CFG)
    for update in range(6):
        guards.check(2 * update, GOOD | {"kl": 2.0})
        assert guards.check(2 * update + 1, GOOD) == []
    assert guards.all_within_limits


def test_limits_of_0_and_metrics_that_are_missing_stop_nothing():
    off = Guards(GuardConfig(patience=1))
    assert (
        off.check(
            1,
            {
                "entropy": 0.0,
                "kl": 1e9,
                "sampling_logp_difference": 1e9,
                "turns/repeated_fraction": 1.0,
            },
        )
        == []
    )
    assert Guards(CFG).check(1, {}) == []


def test_updates_without_a_scored_episode_stop_the_run_by_default():
    guards = Guards(GuardConfig(patience=2))
    lost = {"episodes/infra_errors": 96.0, "episodes/total": 96.0}
    (warning,) = guards.check(3, lost)
    assert warning == "update 3: 100% of the episodes are lost to browsers or sites (INFRA)"
    assert not guards.all_within_limits
    with pytest.raises(GuardTripped, match=r"the same command again.*guard\.max_infra_fraction=0"):
        guards.check(4, lost)


def test_some_lost_episodes_stop_nothing():
    guards = Guards(GuardConfig(patience=1))
    assert guards.check(1, {"episodes/infra_errors": 90.0, "episodes/total": 96.0}) == []
    assert (
        Guards(GuardConfig(patience=1, max_infra_fraction=0.0)).check(
            1, {"episodes/infra_errors": 1.0, "episodes/total": 1.0}
        )
        == []
    )
