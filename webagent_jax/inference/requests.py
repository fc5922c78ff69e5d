"""A request as it waits and as it runs, on the host."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np

from webagent_jax.inference.slot_control import MAX_STOP_IDS, Field
from webagent_jax.types import Completion, FloatArray, IntArray


class RequestExpired(TimeoutError):
    """A request was not finished by its deadline."""


def token_ids(given: Sequence[int] | IntArray, vocab_size: int, name: str) -> IntArray:
    """int32. Raises ValueError where that is no flat sequence of ids of the vocabulary."""
    ids = np.array(given) if len(given) else np.zeros(0, np.int32)
    if ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer):
        raise ValueError(f"{name} must be a flat sequence of token ids")
    if len(ids) and not 0 <= ids.min() <= ids.max() < vocab_size:
        raise ValueError(f"{name} has ids outside the vocabulary, 0 to {vocab_size - 1}")
    return ids.astype(np.int32)


@dataclass(frozen=True, slots=True)
class Piece:
    """What one dispatch sampled for one request, [n] each."""

    tokens: IntArray
    logp: FloatArray
    sampling_logp: FloatArray
    version: int  # of the params


@dataclass(eq=False)
class Request:
    """One prompt to be continued, what was sampled for it so far, and who waits for it."""

    prompt_ids: IntArray  # [P]
    limit: int  # tokens to sample at most
    temperature: float
    top_p: float
    top_k: int
    seed: int
    stop_ids: tuple[int, ...]
    deadline: float = math.inf  # by time.monotonic
    future: Future[Completion] = field(default_factory=Future)
    pieces: list[Piece] = field(default_factory=list)
    sampled: int = 0

    def __post_init__(self) -> None:
        """Raises ValueError where an option cannot work on any engine."""
        if self.limit < 1:
            raise ValueError(f"max_new_tokens={self.limit}: ask for one token at least")
        if not 0.0 <= self.temperature < math.inf:
            raise ValueError(f"temperature={self.temperature} is not a finite number from 0 up")
        if not 0.0 < self.top_p <= 1.0:
            raise ValueError(f"top_p={self.top_p} is not in (0, 1]; 1 keeps every token")
        if not 0 <= self.top_k < 2**31:
            raise ValueError(f"top_k={self.top_k} is not 0 or more; 0 keeps every token")
        if len(self.stop_ids) > MAX_STOP_IDS:
            raise ValueError(f"{len(self.stop_ids)} stop_ids; give {MAX_STOP_IDS} at most")

    def fit(self, vocab_size: int, max_tokens: int) -> None:
        """Cuts `limit` to what is left of `max_tokens`. Raises ValueError where nothing is."""
        if not np.size(self.prompt_ids):
            raise ValueError("prompt_ids must be a flat sequence of one token id or more")
        prompt = token_ids(self.prompt_ids, vocab_size, "prompt_ids")
        if any(not 0 <= token < vocab_size for token in self.stop_ids):
            raise ValueError(f"stop_ids has ids outside the vocabulary, 0 to {vocab_size - 1}")
        if len(prompt) + 1 > max_tokens:
            raise ValueError(
                f"a prompt of {len(prompt)} tokens leaves no room for a reply: this engine holds "
                f"max_tokens={max_tokens}, prompt and reply together. Shorten the prompt or make "
                "the engine with more"
            )
        self.prompt_ids = prompt
        self.limit = min(self.limit, max_tokens - len(prompt))

    @property
    def tokens(self) -> IntArray:
        """Prompt and what was sampled, int32."""
        return np.concatenate([self.prompt_ids, *(piece.tokens for piece in self.pieces)])

    @property
    def stored(self) -> int:
        """Tokens that will be in the cache at most: all but the last that is sampled."""
        return len(self.prompt_ids) + self.limit - 1

    def control(self) -> IntArray:
        """What the device must know of it, int32 [Field.TABLE], but for the slot's mode."""
        row = np.full(Field.TABLE, -1, np.int32)
        row[Field.TOKEN] = self.pieces[-1].tokens[-1] if self.pieces else self.prompt_ids[-1]
        row[Field.POSITION] = len(self.prompt_ids) + self.sampled - 1
        row[Field.SAMPLED] = self.sampled
        row[Field.LIMIT] = self.limit
        seed = int(self.seed) % 2**64
        words = np.array([seed >> 32, seed % 2**32], np.uint32)
        row[[Field.SEED_HIGH, Field.SEED_LOW]] = words.view(np.int32)
        knobs = np.array([self.temperature, self.top_p], np.float32)
        row[[Field.TEMPERATURE, Field.TOP_P]] = knobs.view(np.int32)
        row[Field.TOP_K] = self.top_k
        row[Field.STOP : Field.STOP + len(self.stop_ids)] = self.stop_ids
        return row

    def take(self, piece: Piece) -> None:
        if len(piece.tokens):
            self.pieces.append(piece)
            self.sampled += len(piece.tokens)

    def complete(self) -> None:
        """Hands the completion to whoever waits, unless they have cancelled."""
        token_ids = np.concatenate([piece.tokens for piece in self.pieces])
        versions = [np.full(len(piece.tokens), piece.version, np.int32) for piece in self.pieces]
        completion = Completion(
            token_ids=token_ids,
            logp=np.concatenate([piece.logp for piece in self.pieces]),
            policy_version=np.concatenate(versions),
            finish="stop" if token_ids[-1] in self.stop_ids else "length",
            sampling_logp=np.concatenate([piece.sampling_logp for piece in self.pieces]),
        )
        if self.future.set_running_or_notify_cancel():
            self.future.set_result(completion)

    def fail(self, error: Exception) -> None:
        if self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)

    def expire(self) -> bool:
        """Fails it when its deadline is past; True where nobody waits any more."""
        if time.monotonic() > self.deadline:
            self.fail(RequestExpired("the request was not finished by its deadline"))
        return self.future.done()
