"""What the host tells the device, a row of int32 for each slot and each stretch of a prompt."""

from __future__ import annotations

import enum

MAX_STOP_IDS = 8  # per request


class Mode(enum.IntEnum):
    """What the host says of a slot."""

    IDLE = 0
    RUNNING = 1  # goes on unless it has met its end, which the device knows first
    ADMITTED = 2  # begins with this dispatch


class Field(enum.IntEnum):
    """The columns of a slot's row of control; floats and the seed travel as 32-bit patterns."""

    MODE = 0
    TOKEN = 1  # the last of the prompt: the first one that is decoded
    POSITION = 2  # of that token
    BEFORE = 3  # tokens of the preamble before its own: all of them or none
    SAMPLED = 4  # tokens sampled already, of a request that had been interrupted
    LIMIT = 5  # tokens to sample at most
    SEED_HIGH = 6
    SEED_LOW = 7
    TEMPERATURE = 8
    TOP_P = 9
    TOP_K = 10
    STOP = 11  # the first of MAX_STOP_IDS columns, -1 where unused
    TABLE = STOP + MAX_STOP_IDS  # the first of P columns: the pages of its own tokens


class StretchField(enum.IntEnum):
    """The columns of a stretch to be filled: so many pages of a prompt that follow one another."""

    START = 0  # of its first token among the prompt's own, the first of a page
    BEFORE = 1  # tokens of the preamble before those: all of them or none
    PAGES = 2  # of it that hold something
    TOKENS = 3  # the first of as many columns as the longest has tokens; then follow P of the table
