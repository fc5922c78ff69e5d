"""Tests of the task stream state, also after a resume with another number of processes."""

from __future__ import annotations

from itertools import count, islice

import pytest

from webagent_jax import distributed
from webagent_jax.train.resume import TaskStreamState


@pytest.fixture
def restore_states(monkeypatch):
    """Return a function that restores the task stream state of each process."""

    def load_states(checkpoint, num_processes):
        monkeypatch.setattr(distributed, "process_count", lambda: num_processes)
        states = []
        for index in range(num_processes):
            monkeypatch.setattr(distributed, "process_index", lambda index=index: index)
            states.append(TaskStreamState.from_checkpoint(checkpoint))
        return states

    return load_states


def test_initial_states_assign_each_index_once(restore_states):
    states = restore_states({}, 3)
    assert [(state.update, state.next_index) for state in states] == [(0, 0), (0, 1), (0, 2)]
    assert not any(state.pending or state.backlog for state in states)


def test_restore_keeps_states_for_same_process_count(restore_states):
    processes = [
        {"next_index": 8, "pending": [[2, 3], [6, 4]], "backlog": []},
        {"next_index": 11, "pending": [], "backlog": [5, 7]},
    ]
    assert restore_states({"update": 4, "processes": processes}, 2) == [
        TaskStreamState(4, 8, {2: 3, 6: 4}, ()),
        TaskStreamState(4, 11, {}, (5, 7)),
    ]


@pytest.mark.parametrize("num_processes", [1, 3, 4])
def test_restore_keeps_groups_for_other_process_count(restore_states, num_processes):
    next_indices = {0: 12, 1: 5}  # two processes scheduled groups 0, 2 .. 10 and 1, 3
    processes = [
        {"next_index": next_indices[0], "pending": [[4, 7], [10, 8]], "backlog": []},
        {"next_index": next_indices[1], "pending": [[3, 8]], "backlog": []},
    ]
    completed_indices = {index for index in range(20) if index < next_indices[index % 2]} - {
        4,
        10,
        3,
    }
    states = restore_states({"update": 9, "processes": processes}, num_processes)
    assert pending_groups(states) == [(3, 8), (4, 7), (10, 8)]
    assert remaining_indices(states) == sorted(set(range(20)) - completed_indices)
    processes = [
        {
            "next_index": state.next_index,
            "pending": list(state.pending.items()),
            "backlog": state.backlog,
        }
        for state in states
    ]
    restored_states = restore_states({"update": 9, "processes": processes}, 2)
    assert pending_groups(restored_states) == pending_groups(states)
    assert remaining_indices(restored_states) == remaining_indices(states)


def test_restore_distributes_pending_groups_evenly_by_update(restore_states):
    pending = [[4, 7], [6, 7], [8, 8], [10, 8]]
    checkpoint = {"update": 9, "processes": [{"next_index": 12, "pending": pending, "backlog": []}]}
    assert [sorted(state.pending.values()) for state in restore_states(checkpoint, 2)] == [
        [7, 8],
        [7, 8],
    ]


def pending_groups(states):
    return sorted(group for state in states for group in state.pending.items())


def remaining_indices(states):
    """Return the indices below 20 of groups that have yet to complete."""
    new_indices = (
        index
        for state in states
        for index in islice(count(state.next_index, len(states)), 20)
        if index < 20
    )
    return sorted(
        [*new_indices, *(index for state in states for index in (*state.pending, *state.backlog))]
    )
