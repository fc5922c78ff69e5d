"""Tests of the scheduler: slots, prefill batches and decode batches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from webagent_jax.inference.engine_shapes import EngineShapes
from webagent_jax.inference.requests import DecodedTokens, Request
from webagent_jax.inference.scheduler import DecodeBatch, Scheduler
from webagent_jax.inference.slot_control import ChunkField, SlotField, SlotMode

SHAPES = EngineShapes(
    slots=2,
    max_model_len=32,
    page_tokens=4,
    num_pages=17,
    chunk_page_counts=(1,),
    chunks_per_batch=2,
    prefill_batches=2,
    prefill_pages_per_block=2,
    decode_pages_per_block=2,
    decode_attention="xla",
    kv_layout="transposed",
    decode_steps=3,
    refill_slots=1,
    sequential_slots=True,
)


def _request(length: int, limit: int = 4, first_token: int = 1) -> Request:
    prompt = np.arange(first_token, first_token + length, dtype=np.int32)
    return Request(prompt, limit, 1.0, 1.0, 0, 7, (5,))


def _prefill_pages(scheduler: Scheduler) -> list[tuple[int, list[int]]]:
    """Return (start, tokens) of the pages of one prefill batch."""
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


def _decode_batch(scheduler: Scheduler) -> DecodeBatch:
    decode = scheduler.decode()
    assert decode is not None
    return decode


def test_prefill_excludes_last_prompt_token():
    scheduler = Scheduler(SHAPES)
    running = scheduler.admit(_request(20))
    assert running is not None
    assert _prefill_pages(scheduler) == [(n, [*range(n + 1, n + 5)]) for n in (0, 4, 8, 12)]
    assert scheduler.decode() is None
    assert _prefill_pages(scheduler) == [(16, [17, 18, 19, 0])]
    decode = _decode_batch(scheduler)
    assert decode.sequences == (running,)
    row = decode.control[running.slot]
    assert row[[SlotField.MODE, SlotField.TOKEN, SlotField.POSITION]].tolist() == [
        SlotMode.STARTING,
        20,
        19,
    ]
    assert row[[SlotField.SAMPLED, SlotField.LIMIT]].tolist() == [0, 4]
    table = row[SlotField.TABLE :]
    assert len(set(table[:6].tolist())) == 6  # for at most 23 tokens
    assert not table[6:].any()
    assert not decode.control[1 - running.slot].any()
    assert _decode_batch(scheduler).control[running.slot, SlotField.MODE] == SlotMode.RUNNING


def test_prefill_chunks_contain_page_table():
    scheduler = Scheduler(SHAPES)
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


def test_prefill_skips_shared_prefix():
    scheduler = Scheduler(SHAPES, np.arange(1, 7, dtype=np.int32))
    running, other = scheduler.admit(_request(13)), scheduler.admit(_request(13, first_token=2))
    assert running and other
    assert _prefill_pages(scheduler) == [
        (0, [7, 8, 9, 10]),
        (4, [11, 12, 0, 0]),
        (0, [2, 3, 4, 5]),
        (4, [6, 7, 8, 9]),
    ]
    assert _decode_batch(scheduler).sequences == (running,)
    row = running.control
    assert row[[SlotField.TOKEN, SlotField.POSITION, SlotField.PREFIX_LEN]].tolist() == [13, 12, 6]
    assert np.count_nonzero(row[SlotField.TABLE :]) == 3  # for at most 10 tokens after the prefix
    assert other.control[SlotField.PREFIX_LEN] == 0


def test_prefix_and_one_token_need_no_prefill():
    scheduler = Scheduler(SHAPES, np.arange(1, 7, dtype=np.int32))
    running = scheduler.admit(_request(7))
    assert scheduler.prefill() is None
    assert _decode_batch(scheduler).sequences == (running,)


def test_one_token_needs_no_prefill():
    scheduler = Scheduler(SHAPES)
    running = scheduler.admit(_request(1))
    assert scheduler.prefill() is None
    assert _decode_batch(scheduler).sequences == (running,)


def test_equal_prompts_prefill_common_pages_once():
    scheduler = Scheduler(SHAPES)
    for _ in range(2):
        scheduler.admit(_request(11))
    assert [start for start, _ in _prefill_pages(scheduler)] == [0, 4, 8, 8]


def test_fully_matched_prompt_decodes_after_matched_pages_are_filled():
    scheduler = Scheduler(SHAPES)
    first, second = scheduler.admit(_request(25)), scheduler.admit(_request(17))
    assert first and second and second.num_computed_tokens == len(second.prefix) == 16
    assert scheduler.decode() is None
    assert [start for start, _ in _prefill_pages(scheduler)] == [0, 4, 8, 12]
    assert scheduler.decode() is None
    assert [start for start, _ in _prefill_pages(scheduler)] == [16, 20]
    assert _decode_batch(scheduler).sequences == (first, second)
    scheduler.release(second)
    third = scheduler.admit(_request(17))
    assert third and _decode_batch(scheduler).sequences == (first, third)


def test_fully_matched_prompt_decodes_after_canceled_prefill():
    scheduler = Scheduler(replace(SHAPES, slots=3))
    first = scheduler.admit(_request(9))
    assert first and _prefill_pages(scheduler)
    canceled = scheduler.admit(_request(20, first_token=7))
    second = scheduler.admit(_request(9))
    assert canceled and second and _decode_batch(scheduler).sequences == (first,)
    scheduler.release(canceled)
    assert scheduler.prefill() is None
    assert _decode_batch(scheduler).sequences == (first, second)


def test_preempted_dependents_leave_no_prefill_work():
    scheduler = Scheduler(SHAPES)
    first, second = scheduler.admit(_request(17)), scheduler.admit(_request(17))
    assert first and second
    scheduler.release(first)
    assert scheduler.preempt_all() == [second.request]
    assert scheduler.prefill() is None
    assert scheduler.num_free_pages == 16


def test_admit_requires_free_slot_and_pages():
    scheduler = Scheduler(SHAPES)
    first, second = (
        scheduler.admit(_request(30, limit=2)),
        scheduler.admit(_request(9, first_token=40)),
    )
    assert first and second
    assert scheduler.admit(_request(1)) is None  # no slot
    scheduler.release(second)
    third = scheduler.admit(_request(28, first_token=60))
    assert third is not None
    scheduler.release(first)
    fourth = scheduler.admit(_request(25, limit=8, first_token=90))
    assert fourth is not None  # pages that `first` has not prefilled are free
    assert scheduler.num_free_pages == 16 - 8 - 8


def test_released_pages_with_dependents_are_prefilled():
    scheduler = Scheduler(SHAPES)
    first, second = scheduler.admit(_request(20)), scheduler.admit(_request(20))
    assert first and second
    scheduler.release(first)
    starts = [start for _ in range(3) for start, _ in _prefill_pages(scheduler)]
    assert starts == [0, 4, 8, 12, 16, 16]
    assert _decode_batch(scheduler).sequences == (second,)
    scheduler.release(second)
    assert scheduler.num_free_pages == 16


def test_released_pages_without_dependents_are_not_prefilled():
    scheduler = Scheduler(SHAPES)
    first, second = scheduler.admit(_request(20)), scheduler.admit(_request(20))
    assert first and second
    scheduler.release(first)
    scheduler.release(second)
    assert scheduler.prefill() is None
    assert scheduler.num_free_pages == 16


def test_preempted_request_resumes_after_last_token():
    scheduler = Scheduler(SHAPES)
    request = _request(10, limit=6)
    assert scheduler.admit(request)
    floats = np.zeros(3, np.float32)
    request.append(DecodedTokens(np.array([50, 51, 52], np.int32), floats, floats, 0))
    assert scheduler.preempt_all() == [request]
    assert scheduler.num_free_pages == 16
    running = scheduler.admit(request)
    assert running is not None
    assert _prefill_pages(scheduler)[-1] == (8, [9, 10, 50, 51])
    row = _decode_batch(scheduler).control[running.slot]
    assert row[[SlotField.TOKEN, SlotField.POSITION, SlotField.SAMPLED]].tolist() == [52, 12, 3]


def test_preempt_all_frees_slots_and_pages():
    scheduler = Scheduler(SHAPES)
    first, second = scheduler.admit(_request(20)), scheduler.admit(_request(24))
    assert first and second
    scheduler.prefill()
    scheduler.release(first)
    assert scheduler.preempt_all() == [second.request]
    assert scheduler.num_free_pages == 16
    assert scheduler.prefill() is None
    assert scheduler.running_sequences == []
