"""Layout of the control rows that the host sends: int32, one per slot and per prefill chunk."""

from __future__ import annotations

import enum

MAX_STOP_IDS = 8  # per request


class SlotMode(enum.IntEnum):
    """State of a slot as the host sends it."""

    IDLE = 0
    RUNNING = 1  # decoding continues unless the device has finished the sequence already
    STARTING = 2  # decoding starts with this dispatch


class SlotField(enum.IntEnum):
    """Columns of the control row of a slot; floats and the seed are stored as 32-bit patterns."""

    MODE = 0
    TOKEN = 1  # input of the first decode step: the last token of the prompt
    POSITION = 2  # position of that token
    PREFIX_LEN = 3  # length of the shared prefix before the sequence's own tokens; 0 without it
    SAMPLED = 4  # number of tokens sampled before the request was preempted
    LIMIT = 5  # maximum number of tokens to sample
    SEED_HIGH = 6
    SEED_LOW = 7
    TEMPERATURE = 8
    TOP_P = 9
    TOP_K = 10
    STOP = 11  # first of MAX_STOP_IDS columns; -1 if unused
    TABLE = STOP + MAX_STOP_IDS  # first of P columns: page table of the sequence's own tokens


class ChunkField(enum.IntEnum):
    """Columns of the control row of a prefill chunk: consecutive pages of one prompt."""

    START = 0  # index of the first token among the prompt's own; it is the first of a page
    PREFIX_LEN = 1  # length of the shared prefix before the prompt's own tokens; 0 without it
    PAGES = 2  # number of pages that are not padding
    TOKENS = 3  # first of `chunk_tokens` columns, followed by the P columns of the page table
