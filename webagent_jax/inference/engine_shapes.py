"""Static shapes of an engine, fixed at construction so that no program compiles twice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Self

import jax

from webagent_jax.config import EngineConfig
from webagent_jax.inference import kv_cache as kv
from webagent_jax.inference import prompt_lookup
from webagent_jax.inference.paged_attention import Implementation
from webagent_jax.policy import ModelConfig, flops
from webagent_jax.policy.kernels.common import is_triton_width

# Smaller pages share more and waste less; larger pages need fewer matmuls.
PAGE_TOKENS = 64
_MIN_LONG_MODEL_LEN = 1024  # tokens of a long sequence


class _PrefillShapes(NamedTuple):
    chunk_page_counts: tuple[int, ...]  # allowed sizes of a chunk, ascending
    chunks_per_batch: int
    pages_per_block: int


# Larger chunks make wider, cheaper matmuls of attention, which dominates long prompts; short
# prompts waste the padding. On accelerators, one batch of eight long chunks costs much less than
# eight batches. A batch costs the same however many of its chunks are padding, so on a CPU a long
# chunk is a batch of its own, the last chunk of a long prompt may be shorter, and blocks are as
# short as a chunk, since their padding is computed too. The last chunk has at least two pages: with
# one, XLA sums the matmuls of narrow policies in another order.
_SHORT_PREFILL = _PrefillShapes((1,), chunks_per_batch=4, pages_per_block=2)
_LONG_PREFILL = _PrefillShapes((4,), chunks_per_batch=8, pages_per_block=8)
_LONG_CPU_PREFILL = _PrefillShapes((2, 4), chunks_per_batch=1, pages_per_block=4)
_PREFILL_BATCHES = 8
# Decode attention: accelerators read many pages at once; a CPU also computes their padding. With
# all slots together, a CPU copies the pages of a block, and several side by side need a
# transposition.
_CPU_DECODE_PAGES_PER_BLOCK = 1
_SEQUENTIAL_DECODE_PAGES_PER_BLOCK = 2
_DECODE_PAGES_PER_BLOCK = 32
# With many slots, one of them finishes in almost every step. Refilling several at once saves
# dispatches and leaves slots idle for a few steps only.
_SLOTS_PER_REFILL = 16
_REGISTER_WIDTH = 128  # numbers per register row of a TPU
# Size of the params that stay in the CPU cache. Up to it, a decode step processes the slots
# sequentially: that costs no more, and idle slots cost nothing. Larger params are read once for all
# slots, as on accelerators.
_CPU_CACHE_BYTES = 2**23


@dataclass(frozen=True)
class EngineShapes:
    """Static shapes of the programs and the KV cache of an engine."""

    slots: int  # number of sequences decoded together
    max_model_len: int  # maximum length of one sequence, prompt and response together
    page_tokens: int  # tokens per page of the KV cache
    num_pages: int  # total number of pages, NULL_PAGE included
    chunk_page_counts: tuple[int, ...]  # allowed sizes of a prefill chunk in pages, ascending
    chunks_per_batch: int  # prefill chunks computed together
    prefill_batches: int  # maximum number of batches of chunks per prefill dispatch
    prefill_pages_per_block: int  # page-table columns per matmul of prefill attention
    decode_pages_per_block: int  # page-table columns per matmul of decode attention
    decode_attention: Implementation  # attention of a decode step to the pages
    kv_layout: kv.Layout  # layout of the pages of the KV cache
    decode_steps: int  # maximum number of decode steps per dispatch
    refill_slots: int  # finished slots at which a dispatch ends if requests wait
    sequential_slots: bool  # whether a decode step processes the slots one after another
    num_speculative_tokens: int = 0  # draft tokens per slot and decode step
    shared_prefix_tokens: int = 0  # length of the shared prefix, which is stored once

    @property
    def pages_per_sequence(self) -> int:
        """Maximum number of pages of one sequence."""
        return -(-self.max_model_len // self.page_tokens)

    @property
    def history_tokens(self) -> int:
        """Tokens of a sequence that are searched for draft tokens."""
        return self.max_model_len if self.num_speculative_tokens else 0

    @property
    def recent_tokens(self) -> int:
        """Tokens of recent responses that are searched for draft tokens."""
        return prompt_lookup.RECENT_TOKENS if self.num_speculative_tokens else 0

    @property
    def chunk_tokens(self) -> int:
        """Tokens of the largest prefill chunk."""
        return self.chunk_page_counts[-1] * self.page_tokens

    @property
    def prefill_tokens(self) -> int:
        """Maximum number of prompt tokens computed together."""
        return self.chunks_per_batch * self.chunk_tokens

    @classmethod
    def from_options(
        cls, config: ModelConfig, options: EngineConfig, *, platform: str | None = None
    ) -> Self:
        """Return the shapes of an engine of `config` with the options of a run.

        Raises:
            ValueError: as `from_config`.
        """
        return cls.from_config(
            config,
            slots=options.slots,
            max_model_len=options.max_model_len,
            decode_steps=options.steps_per_dispatch,
            cache_bytes=options.cache_bytes,
            num_speculative_tokens=options.num_speculative_tokens,
            platform=platform,
        )

    @classmethod
    def from_config(
        cls,
        config: ModelConfig,
        *,
        slots: int,
        max_model_len: int,
        decode_steps: int,
        cache_bytes: int | None,
        num_speculative_tokens: int = 0,
        shared_prefix_tokens: int = 0,
        platform: str | None = None,
    ) -> Self:
        """Return the shapes of an engine of `config`.

        Args:
            config: architecture of the policy.
            slots: number of sequences decoded together.
            max_model_len: maximum length of prompt and response together.
            decode_steps: maximum number of decode steps per dispatch.
            cache_bytes: size of the KV cache. None allocates the pages that all slots can use, and
                half as many for cached prefixes.
            num_speculative_tokens: draft tokens per slot and decode step; 0: no speculation.
            shared_prefix_tokens: length of the shared prefix.
            platform: platform of the devices, such as "tpu"; None: the default backend.

        Raises:
            ValueError: a size is too small, `max_model_len` exceeds the model's positions, one
                sequence does not fit `cache_bytes`, or the shared prefix does not fit
                `max_model_len`.
        """
        if slots < 1 or decode_steps < 1 or max_model_len < 2:
            raise ValueError(
                "slots and steps_per_dispatch must be 1 or more, max_model_len 2 or more"
            )
        if num_speculative_tokens < 0:
            raise ValueError(f"num_speculative_tokens={num_speculative_tokens} must be 0 or more")
        if max_model_len > config.max_positions:
            raise ValueError(
                f"max_model_len={max_model_len} exceeds the context length "
                f"{config.max_positions} of the model: lower it"
            )
        # After the prefix: the last token of the prompt, which is not prefilled, and a response.
        if shared_prefix_tokens + 2 > max_model_len:
            raise ValueError(
                f"a shared prefix of {shared_prefix_tokens} tokens leaves no space for prompt and "
                f"response in max_model_len={max_model_len}: shorten the prefix or raise "
                "max_model_len"
            )
        pages_per_sequence = -(-max_model_len // PAGE_TOKENS)
        page_bytes = PAGE_TOKENS * kv.kv_bytes_per_token(config)
        platform = platform or jax.default_backend()
        is_cpu = platform == "cpu"
        long_prefill = _LONG_CPU_PREFILL if is_cpu else _LONG_PREFILL
        prefill = long_prefill if max_model_len >= _MIN_LONG_MODEL_LEN else _SHORT_PREFILL
        # NULL_PAGE, the pages that all slots can use, and half as many for cached prefixes.
        num_pages = 1 + pages_per_sequence * (slots + -(-slots // 2))
        if cache_bytes is not None:
            num_pages = cache_bytes // page_bytes
        min_bytes = (1 + pages_per_sequence) * page_bytes
        if num_pages < 1 + pages_per_sequence:
            raise ValueError(
                f"cache_bytes={cache_bytes} is too small for one sequence of "
                f"max_model_len={max_model_len}: raise it to {min_bytes} or lower max_model_len"
            )
        sequential_slots = is_cpu and fits_cpu_cache(config)
        decode_pages_per_block = min(_DECODE_PAGES_PER_BLOCK, pages_per_sequence)
        if is_cpu:
            decode_pages_per_block = (
                _SEQUENTIAL_DECODE_PAGES_PER_BLOCK
                if sequential_slots
                else _CPU_DECODE_PAGES_PER_BLOCK
            )
        return cls(
            slots=slots,
            max_model_len=max_model_len,
            page_tokens=PAGE_TOKENS,
            num_pages=num_pages,
            chunk_page_counts=prefill.chunk_page_counts,
            chunks_per_batch=prefill.chunks_per_batch,
            prefill_batches=_PREFILL_BATCHES,
            prefill_pages_per_block=prefill.pages_per_block,
            decode_pages_per_block=decode_pages_per_block,
            decode_attention=_decode_attention(config, platform),
            kv_layout=_kv_layout(config, platform),
            decode_steps=decode_steps,
            refill_slots=max(1, slots // _SLOTS_PER_REFILL),
            sequential_slots=sequential_slots,
            num_speculative_tokens=num_speculative_tokens,
            shared_prefix_tokens=shared_prefix_tokens,
        )


def _decode_attention(config: ModelConfig, platform: str) -> Implementation:
    return "gpu" if platform == "gpu" and is_triton_width(config.head_dim) else "xla"


def _kv_layout(config: ModelConfig, platform: str) -> kv.Layout:
    """Return the layout that the platform reads fastest."""
    if platform == "cpu":
        return "transposed"
    # Only a TPU pads rows to its registers.
    fills_registers = platform == "gpu" or config.head_dim % _REGISTER_WIDTH == 0
    return "rows" if fills_registers else "fused"


def fits_cpu_cache(config: ModelConfig) -> bool:
    """Return whether the backend is a CPU whose cache fits the params of a decode step."""
    # The unembedding is read completely; the embedding adds only one row per token.
    num_params = (
        config.num_layers * flops.layer_weights(config) + config.d_model * config.vocab_size
    )
    return jax.default_backend() == "cpu" and num_params * config.itemsize <= _CPU_CACHE_BYTES
