"""A request as it waits and as it runs, on the host."""

from __future__ import annotations

import math
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np

from webagent_jax.generate.device import ADMISSION_WIDTH, MAX_STOP_IDS, Field
from webagent_jax.types import Completion, FloatArray, IntArray


@dataclass(eq=False)
class Request:
    """One prompt to be continued, what was sampled for it so far, and who waits for it."""

    prompt_ids: IntArray  # [P]
    limit: int  # tokens to sample at most
    temperature: float
    top_p: float
    seed: int
    stop_ids: tuple[int, ...]
    future: Future[Completion] = field(default_factory=Future)
    tokens: list[IntArray] = field(default_factory=list)  # one piece per dispatch
    logp: list[FloatArray] = field(default_factory=list)
    sampled: int = 0

    def __post_init__(self) -> None:
        """Raises ValueError where an option cannot work on any engine."""
        if self.limit < 1:
            raise ValueError(f"max_new_tokens={self.limit}: ask for one token at least")
        if not 0.0 <= self.temperature < math.inf:
            raise ValueError(f"temperature={self.temperature} is not a finite number from 0 up")
        if not 0.0 < self.top_p <= 1.0:
            raise ValueError(f"top_p={self.top_p} is not in (0, 1]; 1 keeps every token")
        if len(self.stop_ids) > MAX_STOP_IDS:
            raise ValueError(f"{len(self.stop_ids)} stop_ids; give {MAX_STOP_IDS} at most")

    def fit(self, vocab_size: int, max_tokens: int) -> None:
        """Cuts `limit` to what is left of `max_tokens`. Raises ValueError where nothing is."""
        prompt = self.prompt_ids
        if prompt.ndim != 1 or not len(prompt) or not np.issubdtype(prompt.dtype, np.integer):
            raise ValueError("prompt_ids must be a flat sequence of one token id or more")
        if prompt.min() < 0 or prompt.max() >= vocab_size:
            raise ValueError(f"prompt_ids has ids outside the vocabulary, 0 to {vocab_size - 1}")
        if any(not 0 <= token < vocab_size for token in self.stop_ids):
            raise ValueError(f"stop_ids has ids outside the vocabulary, 0 to {vocab_size - 1}")
        if len(prompt) + 1 > max_tokens:
            raise ValueError(
                f"a prompt of {len(prompt)} tokens leaves no room for a reply: this engine holds "
                f"max_tokens={max_tokens}, prompt and reply together. Shorten the prompt or make "
                "the engine with more"
            )
        self.limit = min(self.limit, max_tokens - len(prompt))

    def admission(self, slot: int) -> IntArray:
        """What the device must know of it, int32 [ADMISSION_WIDTH]; see `device.Field`."""
        row = np.full(ADMISSION_WIDTH, -1, np.int32)
        row[Field.SLOT] = slot
        row[Field.TOKEN] = self.prompt_ids[-1]
        row[Field.POSITION] = len(self.prompt_ids) - 1
        row[Field.LIMIT] = self.limit
        seed = int(self.seed) % 2**64
        words = np.array([seed >> 32, seed % 2**32], np.uint32)
        row[[Field.SEED_HIGH, Field.SEED_LOW]] = words.view(np.int32)
        knobs = np.array([self.temperature, self.top_p], np.float32)
        row[[Field.TEMPERATURE, Field.TOP_P]] = knobs.view(np.int32)
        row[Field.STOP : Field.STOP + len(self.stop_ids)] = self.stop_ids
        return row

    def take(self, tokens: IntArray, logp: FloatArray) -> None:
        self.tokens.append(tokens)
        self.logp.append(logp)
        self.sampled += len(tokens)

    @property
    def length(self) -> int:
        """Tokens of the prompt and of what was sampled."""
        return len(self.prompt_ids) + self.sampled

    def complete(self, version: int) -> None:
        """Hands the completion to whoever waits, unless they have cancelled."""
        token_ids = np.concatenate(self.tokens)
        completion = Completion(
            token_ids=token_ids,
            logp=np.concatenate(self.logp),
            policy_version=np.full(len(token_ids), version, np.int32),
            finish="stop" if token_ids[-1] in self.stop_ids else "length",
        )
        if self.future.set_running_or_notify_cancel():
            self.future.set_result(completion)

    def fail(self, error: Exception) -> None:
        if self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)
