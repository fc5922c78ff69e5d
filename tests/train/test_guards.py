"""Tests of guards: warnings, patience and stopped runs."""

from __future__ import annotations

import pytest

from webagent_jax.config import GuardConfig
from webagent_jax.train.metrics import GuardLimitError, Guards

GOOD_METRICS = {
    "entropy": 0.5,
    "kl": 0.01,
    "sampling_logp_difference": 1e-6,
    "turns/repeated_fraction": 0.1,
}
CFG = GuardConfig(
    min_entropy=0.1, max_kl=1.0, max_logp_difference=0.01, max_repetition=0.5, patience=2
)


def test_guards_return_no_warning_within_limits():
    guards = Guards(CFG)
    assert guards.check(1, GOOD_METRICS) == []
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
def test_guards_warn_then_raise_beyond_limit(name, option, value):
    guards = Guards(CFG)
    bad_metrics = GOOD_METRICS | {name: value}
    (warning,) = guards.check(7, bad_metrics)
    assert warning.startswith(f"update 7: {name} {value:.3g} is ")
    assert not guards.all_within_limits
    with pytest.raises(GuardLimitError, match=rf"after update 8: {name} .*guard\.{option}"):
        guards.check(8, bad_metrics)


def test_good_update_resets_patience():
    guards = Guards(CFG)
    for update in range(6):
        guards.check(2 * update, GOOD_METRICS | {"kl": 2.0})
        assert guards.check(2 * update + 1, GOOD_METRICS) == []
    assert guards.all_within_limits


def test_guards_ignore_zero_limits_and_missing_metrics():
    guards_without_limits = Guards(GuardConfig(patience=1))
    assert (
        guards_without_limits.check(
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


def test_guards_stop_run_without_scored_episodes():
    guards = Guards(GuardConfig(patience=2))
    infra_metrics = {"episodes/infra_errors": 96.0, "episodes/total": 96.0}
    (warning,) = guards.check(3, infra_metrics)
    assert warning == "update 3: 100% of the episodes are lost to browsers or sites (INFRA)"
    assert not guards.all_within_limits
    with pytest.raises(
        GuardLimitError, match=r"the same command again.*guard\.max_infra_fraction=0"
    ):
        guards.check(4, infra_metrics)


def test_guards_allow_partial_or_unlimited_infra_errors():
    guards = Guards(GuardConfig(patience=1))
    assert guards.check(1, {"episodes/infra_errors": 90.0, "episodes/total": 96.0}) == []
    assert (
        Guards(GuardConfig(patience=1, max_infra_fraction=0.0)).check(
            1, {"episodes/infra_errors": 1.0, "episodes/total": 1.0}
        )
        == []
    )


def test_update_without_step_keeps_counts():
    guards = Guards(CFG)
    guards.check(1, GOOD_METRICS | {"entropy": 0.05})
    assert guards.check(2, {"turns/repeated_fraction": 0.1}) == []
    assert not guards.all_within_limits
    with pytest.raises(GuardLimitError, match="after update 3: entropy"):
        guards.check(3, GOOD_METRICS | {"entropy": 0.05})
