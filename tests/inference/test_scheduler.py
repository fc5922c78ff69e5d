"""Who has a slot, what is filled and what is decoded."""

from __future__ import annotations

import numpy as np

from webagent_jax.inference.engine_shapes import EngineShapes
from webagent_jax.inference.requests import DecodedTokens, Request
from webagent_jax.inference.scheduler import DecodeBatch, Scheduler
from webagent_jax.inference.slot_control import ChunkField, SlotField, SlotMode

SIZES = EngineShapes(
    slots=2,
    max_model_len=32,
    page_tokens=4,
    num_pages=17,
    chunk_page_counts=(1,),
    chunks_per_batch=2,
    prefill_batches=2,
    prefill_pages_per_block=2,
    decode_steps=3,
    sequential_slots=True,
)


def _request(length: int, limit: int = 4, first: int = 1) -> Request:
    prompt = np.arange(first, first + length, dtype=np.int32)
    return Request(prompt, limit, 1.0, 1.0, 0, 7, (5,))


def _fill(scheduler: Scheduler) -> list[tuple[int, list[int]]]:
    """(start, tokens) of the pages of one dispatch."""
    prefill = scheduler.prefill()
    if prefill is None:
        return []
    pages = prefill.chunks.reshape(4, -1)
    assert not pages[2 * prefill.count :].any()
    tokens = pages[:, ChunkField.TOKENS : ChunkField.TOKENS + 4]
    return [
        (int(start), row.tolist())
        for start, row in zip(pages[:, ChunkField.START], tokens, strict=True)
        if row.any()
    ]


def _decoded(scheduler: Scheduler) -> DecodeBatch:
    decode = scheduler.decode()
    assert decode is not None
    return decode


def test_a_prompt_is_filled_page_by_page_but_for_its_last_token():
    scheduler = Scheduler(SIZES)
    running = scheduler.admit(_request(20))
    assert running is not None
    assert _fill(scheduler) == [(n, [*range(n + 1, n + 5)]) for n in (0, 4, 8, 12)]
    assert scheduler.decode() is None
    assert _fill(scheduler) == [(16, [17, 18, 19, 0])]
    decode = _decoded(scheduler)
    assert decode.sequences == (running,)
    row = decode.control[running.slot]
    assert row[[SlotField.MODE, SlotField.TOKEN, SlotField.POSITION]].tolist() == [
        SlotMode.STARTING,
        20,
        19,
    ]
    assert row[[SlotField.SAMPLED, SlotField.LIMIT]].tolist() == [0, 4]
    table = row[SlotField.TABLE :]
    assert len(set(table[:6].tolist())) == 6  # 23 tokens are stored at most
    assert not table[6:].any()
    assert not decode.control[1 - running.slot].any()
    assert _decoded(scheduler).control[running.slot, SlotField.MODE] == SlotMode.RUNNING


def test_pages_know_their_table():
    scheduler = Scheduler(SIZES)
    running = scheduler.admit(_request(9))
    prefill = scheduler.prefill()
    assert running and prefill
    pages = prefill.chunks.reshape(4, -1)
    assert prefill.count == 1
    for page in pages[:2]:
        np.testing.assert_array_equal(
            page[ChunkField.TOKENS + 4 :], running.control[SlotField.TABLE :]
        )
    assert prefill.tokens == 8


def test_a_preamble_is_left_out():
    scheduler = Scheduler(SIZES, np.arange(1, 7, dtype=np.int32))
    running, other = scheduler.admit(_request(13)), scheduler.admit(_request(13, first=2))
    assert running and other
    assert _fill(scheduler) == [
        (0, [7, 8, 9, 10]),
        (4, [11, 12, 0, 0]),
        (0, [2, 3, 4, 5]),
        (4, [6, 7, 8, 9]),
    ]
    assert _decoded(scheduler).sequences == (running,)
    row = running.control
    assert row[[SlotField.TOKEN, SlotField.POSITION, SlotField.PREFIX_LEN]].tolist() == [13, 12, 6]
    assert np.count_nonzero(row[SlotField.TABLE :]) == 3  # 10 tokens of its own are stored at most
    assert other.control[SlotField.PREFIX_LEN] == 0


def test_a_preamble_alone_needs_no_filling():
    scheduler = Scheduler(SIZES, np.arange(1, 7, dtype=np.int32))
    running = scheduler.admit(_request(7))
    assert scheduler.prefill() is None
    assert _decoded(scheduler).sequences == (running,)


def test_one_token_needs_no_filling():
    scheduler = Scheduler(SIZES)
    running = scheduler.admit(_request(1))
    assert scheduler.prefill() is None
    assert _decoded(scheduler).sequences == (running,)


def test_siblings_fill_only_what_they_do_not_share():
    scheduler = Scheduler(SIZES)
    for _ in range(2):
        scheduler.admit(_request(11))
    assert [start for start, _ in _fill(scheduler)] == [0, 4, 8, 8]


def test_slots_and_pages_are_waited_for():
    scheduler = Scheduler(SIZES)
    first, second = scheduler.admit(_request(30, limit=2)), scheduler.admit(_request(9, first=40))
    assert first and second
    assert scheduler.admit(_request(1)) is None  # no slot
    scheduler.release(second)
    third = scheduler.admit(_request(28, first=60))
    assert third is not None
    scheduler.release(first)
    fourth = scheduler.admit(_request(25, limit=8, first=90))
    assert fourth is not None  # what the first had filled nothing of is free
    assert scheduler.num_free_pages == 16 - 8 - 8


def test_what_others_count_on_is_filled_though_it_is_given_up():
    scheduler = Scheduler(SIZES)
    given_up, sibling = scheduler.admit(_request(20)), scheduler.admit(_request(20))
    assert given_up and sibling
    scheduler.release(given_up)
    starts = [start for _ in range(3) for start, _ in _fill(scheduler)]
    assert starts == [0, 4, 8, 12, 16, 16]
    assert _decoded(scheduler).sequences == (sibling,)
    scheduler.release(sibling)
    assert scheduler.num_free_pages == 16


def test_nobody_is_filled_for_nobody():
    scheduler = Scheduler(SIZES)
    given_up, sibling = scheduler.admit(_request(20)), scheduler.admit(_request(20))
    assert given_up and sibling
    scheduler.release(given_up)
    scheduler.release(sibling)
    assert scheduler.prefill() is None
    assert scheduler.num_free_pages == 16


def test_an_interrupted_request_begins_where_it_was():
    scheduler = Scheduler(SIZES)
    request = _request(10, limit=6)
    assert scheduler.admit(request)
    floats = np.zeros(3, np.float32)
    request.append(DecodedTokens(np.array([50, 51, 52], np.int32), floats, floats, 0))
    assert scheduler.preempt_all() == [request]
    assert scheduler.num_free_pages == 16
    running = scheduler.admit(request)
    assert running is not None
    assert _fill(scheduler)[-1] == (8, [9, 10, 50, 51])
    row = _decoded(scheduler).control[running.slot]
    assert row[[SlotField.TOKEN, SlotField.POSITION, SlotField.SAMPLED]].tolist() == [52, 12, 3]


def test_interrupting_takes_everything_back():
    scheduler = Scheduler(SIZES)
    first, second = scheduler.admit(_request(20)), scheduler.admit(_request(24))
    assert first and second
    scheduler.prefill()
    scheduler.release(first)
    assert scheduler.preempt_all() == [second.request]
    assert scheduler.num_free_pages == 16
    assert scheduler.prefill() is None
    assert scheduler.running_sequences == []
