"""Tests of the simulation of several hosts, on episodes with round times."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest

from tools import simulate_scale
from tools.simulate_scale import Host, Settings, StoredGroup, Turn
from webagent_jax.sizing import Workload

# Two episodes: a second of browser, a response of two seconds, a second of browser.
TURNS = (Turn(1.0, 10, 2.0), Turn(1.0, 0, 0.0))
GROUP = StoredGroup(True, (TURNS, TURNS))
SETTINGS = Settings(
    groups=1,
    max_extra_groups=0,
    max_staleness=0,
    concurrency=2,
    slots=math.inf,
    model_seconds=lambda turn: turn.model_seconds,
)


def collect_seconds(settings, *groups):
    host = Host(settings, itertools.cycle(groups))
    host.collect(0, 0)
    return host.now


@pytest.mark.parametrize(
    ("changes", "seconds"),
    [
        ({}, 4.0),
        ({"slots": 1}, 6.0),  # the second response waits for the first
        ({"concurrency": 1}, 8.0),
        ({"groups": 2}, 8.0),
        ({"model_seconds": lambda turn: turn.tokens / 2}, 7.0),
    ],
)
def test_rollout_time_follows_limits(changes, seconds):
    assert collect_seconds(replace(SETTINGS, **changes), GROUP) == seconds


def test_groups_without_signal_are_replaced_up_to_limit():
    no_signal = replace(GROUP, has_signal=False)
    assert collect_seconds(replace(SETTINGS, max_extra_groups=3), no_signal, GROUP) == 8.0
    assert collect_seconds(replace(SETTINGS, max_extra_groups=3), no_signal) == 16.0
    assert collect_seconds(SETTINGS, no_signal) == 4.0


def test_synchronous_updates_add_rollout_and_step():
    assert simulate_scale.simulate(SETTINGS, 3, 10.0, [GROUP]) == pytest.approx(14.0)


def test_asynchronous_updates_overlap_browsers_but_not_engine():
    settings = replace(SETTINGS, max_staleness=1, slots=1)
    interval = simulate_scale.simulate(settings, 1, 10.0, [GROUP])
    # Two responses of two seconds after every step; synchronous updates take 16 seconds.
    assert 14.0 <= interval < 16.0


def test_slowest_host_delays_all():
    slow = StoredGroup(True, (TURNS, (Turn(20.0, 10, 2.0), Turn(1.0, 0, 0.0))))
    one = simulate_scale.simulate(SETTINGS, 1, 0.0, [GROUP, slow])
    many = simulate_scale.simulate(SETTINGS, 16, 0.0, [GROUP, slow])
    assert 4.0 < one < 23.0
    assert many == pytest.approx(23.0)


@pytest.mark.parametrize(("browser_seconds", "mean_seconds"), [(None, 1.3), (2.0, 2.0)])
def test_scaled_episodes_have_means_of_workload(browser_seconds, mean_seconds):
    workload = Workload(turns=5.0, prompt_tokens=1_000, response_tokens=30)
    long = (Turn(1.0, 20, 2.0), Turn(1.0, 6, 2.0), Turn(1.0, 10, 2.0), Turn(2.0, 0, 0.0))
    groups = [StoredGroup(True, (TURNS, TURNS)), StoredGroup(False, (long, TURNS))]
    scaled = simulate_scale.scale_episodes(groups, workload, browser_seconds)
    assert [group.has_signal for group in scaled] == [True, False]
    episodes = [episode for group in scaled for episode in group.episodes]
    # The factor is 10/3; each rounding error is added to the next episode.
    assert [len(episode) - 1 for episode in episodes] == [3, 4, 10, 3]
    turns = [turn for episode in episodes for turn in episode]
    assert not any(episode[-1].tokens for episode in episodes)
    assert sum(turn.tokens for turn in turns) / 20 == pytest.approx(30, abs=1)
    # Browsers also take time at the end of an episode, which is not a turn.
    assert sum(turn.browser_seconds for turn in turns) / 20 == pytest.approx(mean_seconds, abs=0.1)


def test_stored_episodes_give_measured_rollout_times():
    record = simulate_scale.load_record()
    for line in simulate_scale.check_table(record).splitlines()[2:]:
        assert float(line.split("|")[-2]) == pytest.approx(1.0, abs=0.05)
