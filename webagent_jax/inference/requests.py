"""Requests of an engine and their results, on the host."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np

from webagent_jax.inference.slot_control import MAX_STOP_IDS, SlotField
from webagent_jax.types import Completion, FloatArray, IntArray


def token_ids(tokens: Sequence[int] | IntArray, vocab_size: int, name: str) -> IntArray:
    """Return token ids as a checked int32 array.

    Args:
        tokens: token ids.
        vocab_size: size of the vocabulary.
        name: name of the argument in error messages.

    Raises:
        ValueError: `tokens` is not a flat sequence of ids of the vocabulary.
    """
    # np.array of an empty list is float64, which the next check would reject.
    ids = np.array(tokens) if len(tokens) else np.zeros(0, np.int32)
    if ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer):
        raise ValueError(f"{name} must be a flat sequence of token ids")
    if len(ids) and not 0 <= ids.min() <= ids.max() < vocab_size:
        raise ValueError(f"{name} has ids outside the vocabulary, 0 to {vocab_size - 1}")
    return ids.astype(np.int32)


@dataclass(frozen=True, slots=True)
class DecodedTokens:
    """Tokens that one dispatch sampled for one request; arrays of shape [n]."""

    tokens: IntArray  # token ids
    logp: FloatArray  # log-probabilities under the policy
    sampling_logp: FloatArray  # log-probabilities under the tempered and filtered distribution
    version: int  # version of the params that sampled the tokens


@dataclass(eq=False)
class Request:
    """Prompt to continue, with sampling options, the tokens sampled so far and the future."""

    prompt_ids: IntArray  # token ids [P]
    limit: int  # maximum number of tokens to sample
    temperature: float  # sampling temperature; 0 is greedy
    top_p: float  # probability mass of the nucleus, in (0, 1]
    top_k: int  # number of most likely tokens that sampling is limited to; 0 for all
    seed: int  # seed of the random keys, one key per token
    stop_ids: tuple[int, ...]  # token ids that end the response
    future: Future[Completion] = field(default_factory=Future)  # receives the completion or error
    pieces: list[DecodedTokens] = field(default_factory=list)  # sampled tokens, one per dispatch
    num_sampled: int = 0  # number of tokens sampled so far
    is_counted: bool = False  # whether the statistics of the engine include the request

    def __post_init__(self) -> None:
        """Check the options that no engine can serve.

        Raises:
            ValueError: an option is out of range.
        """
        if self.limit < 1:
            raise ValueError(f"max_new_tokens={self.limit} is below 1: request one token or more")
        if not 0.0 <= self.temperature < math.inf:
            raise ValueError(f"temperature={self.temperature} must be finite and 0 or more")
        if not 0.0 < self.top_p <= 1.0:
            raise ValueError(f"top_p={self.top_p} must be in (0, 1]; 1 keeps every token")
        if not 0 <= self.top_k < 2**31:
            raise ValueError(f"top_k={self.top_k} must be 0 or more; 0 keeps every token")
        if len(self.stop_ids) > MAX_STOP_IDS:
            raise ValueError(
                f"{len(self.stop_ids)} stop_ids are too many: pass {MAX_STOP_IDS} at most"
            )

    def validate(self, vocab_size: int, max_model_len: int) -> None:
        """Check the request against an engine and clip `limit` to `max_model_len`.

        Args:
            vocab_size: size of the vocabulary.
            max_model_len: maximum length of prompt and response together.

        Raises:
            ValueError: a token id is invalid, or the prompt leaves no space for a response.
        """
        if not np.size(self.prompt_ids):
            raise ValueError("prompt_ids must be a flat sequence of one token id or more")
        prompt = token_ids(self.prompt_ids, vocab_size, "prompt_ids")
        if any(not 0 <= token < vocab_size for token in self.stop_ids):
            raise ValueError(f"stop_ids has ids outside the vocabulary, 0 to {vocab_size - 1}")
        if len(prompt) + 1 > max_model_len:
            raise ValueError(
                f"a prompt of {len(prompt)} tokens leaves no space for a response in "
                f"max_model_len={max_model_len}: shorten the prompt or raise max_model_len"
            )
        self.prompt_ids = prompt
        self.limit = min(self.limit, max_model_len - len(prompt))

    @property
    def tokens(self) -> IntArray:
        """Token ids of the prompt and the sampled tokens, int32."""
        return np.concatenate([self.prompt_ids, *(piece.tokens for piece in self.pieces)])

    @property
    def max_cached_tokens(self) -> int:
        """Maximum number of tokens in the KV cache: all but the last sampled one."""
        return len(self.prompt_ids) + self.limit - 1

    def control(self) -> IntArray:
        """Return the control row without mode and page table, int32 [SlotField.TABLE]."""
        # Unused stop columns stay -1, which no token id equals.
        row = np.full(SlotField.TABLE, -1, np.int32)
        # The last token is the next input of the device: its keys and values are not cached yet.
        row[SlotField.TOKEN] = self.pieces[-1].tokens[-1] if self.pieces else self.prompt_ids[-1]
        row[SlotField.POSITION] = len(self.prompt_ids) + self.num_sampled - 1
        row[SlotField.SAMPLED] = self.num_sampled
        row[SlotField.LIMIT] = self.limit
        seed = int(self.seed) % 2**64
        # The two words are the data of a threefry2x32 key.
        words = np.array([seed >> 32, seed % 2**32], np.uint32)
        row[[SlotField.SEED_HIGH, SlotField.SEED_LOW]] = words.view(np.int32)
        options = np.array([self.temperature, self.top_p], np.float32)
        row[[SlotField.TEMPERATURE, SlotField.TOP_P]] = options.view(np.int32)
        row[SlotField.TOP_K] = self.top_k
        row[SlotField.STOP : SlotField.STOP + len(self.stop_ids)] = self.stop_ids
        return row

    def append(self, piece: DecodedTokens) -> None:
        """Add the tokens of one dispatch."""
        if len(piece.tokens):
            self.pieces.append(piece)
            self.num_sampled += len(piece.tokens)

    def complete(self) -> None:
        """Resolve the future with the completion unless the request was canceled."""
        token_ids = np.concatenate([piece.tokens for piece in self.pieces])
        versions = [np.full(len(piece.tokens), piece.version, np.int32) for piece in self.pieces]
        completion = Completion(
            token_ids=token_ids,
            logp=np.concatenate([piece.logp for piece in self.pieces]),
            policy_version=np.concatenate(versions),
            finish="stop" if token_ids[-1] in self.stop_ids else "length",
            sampling_logp=np.concatenate([piece.sampling_logp for piece in self.pieces]),
        )
        # If this returns true, the future can no longer be canceled.
        if self.future.set_running_or_notify_cancel():
            self.future.set_result(completion)

    def fail(self, error: Exception) -> None:
        """Resolve the future with an error unless the request was canceled."""
        if self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)

    def notify_canceled(self) -> None:
        """Wake the threads that wait for the canceled future; call this once per request."""
        # `cancel` alone does not wake `concurrent.futures.wait` and `as_completed`.
        self.future.set_running_or_notify_cancel()

    @property
    def is_canceled(self) -> bool:
        """True if the caller has canceled the future."""
        return self.future.cancelled()
