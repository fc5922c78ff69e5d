"""How large everything in an engine is: fixed when it is made, so that nothing compiles again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import jax

from webagent_jax.inference import kv_cache as kv
from webagent_jax.policy import ModelConfig, flops

PAGE_TOKENS = 64  # finer pages share and waste less, coarser ones make fewer products
# Pages of one prompt share the products of attention, which are most of the work over long prompts,
# and wide products are cheaper; but short prompts waste what they do not fill of either. Stretches
# that are computed together wait for nobody: one alone costs as much as all, so the long are alone.
# Of the long, the last of a prompt may be shorter on a CPU, where rows that hold nothing cost most;
# not as short as one page, since XLA sums up the products of narrow policies otherwise for so few.
_LONG = 1024  # tokens
_STRETCH_PAGES = {False: (1,), True: (4,)}
_CPU_STRETCH_PAGES = {False: (1,), True: (2, 4)}
_PREFILL_STRETCHES = {False: 4, True: 1}
_PREFILL_BATCHES = 8
_TOGETHER = {False: 2, True: 8}
# On a CPU: where the weights stay in the processor's cache, a decode step takes one slot after the
# other, since that costs no more, and nothing for those that are idle. Larger weights are read once
# for all slots, as they are on accelerators.
_IN_CACHE = 2**23  # bytes of weights


@dataclass(frozen=True)
class Sizes:
    slots: int  # sequences decoded together
    max_tokens: int  # of one sequence, prompt and reply
    page_tokens: int
    pages: int  # in all, the trash included
    stretch_pages: tuple[int, ...]  # consecutive pages of one prompt, prefilled as one; ascending
    prefill_stretches: int  # computed together
    prefill_batches: int  # of so many stretches, to a dispatch at most
    prefill_together: int  # columns of pages that their attention takes at once
    steps: int  # of decoding to a dispatch at most
    slots_apart: bool  # a decode step takes one after the other, not all at once
    preamble_tokens: int = 0  # that prompts may begin with, kept for all of them once

    @property
    def columns(self) -> int:
        """Pages of one sequence at most."""
        return -(-self.max_tokens // self.page_tokens)

    @property
    def stretch_tokens(self) -> int:
        """Of the longest stretch."""
        return self.stretch_pages[-1] * self.page_tokens

    @property
    def prefill_tokens(self) -> int:
        """Computed together at most."""
        return self.prefill_stretches * self.stretch_tokens

    @classmethod
    def of(
        cls,
        config: ModelConfig,
        *,
        slots: int,
        max_tokens: int,
        steps: int,
        cache_bytes: int | None,
        preamble_tokens: int = 0,
    ) -> Self:
        """By default there is room for as many tokens as all slots can have, and half as many of
        prefixes that nobody uses just now.

        Raises:
            ValueError: a size is too small, `max_tokens` is beyond the model's positions, or one
                sequence does not fit `cache_bytes`, or the preamble `max_tokens`.
        """
        if slots < 1 or steps < 1 or max_tokens < 2:
            raise ValueError("slots and steps_per_dispatch must be 1 or more, max_tokens 2 or more")
        if max_tokens > config.max_positions:
            raise ValueError(
                f"max_tokens={max_tokens} is beyond the model's {config.max_positions} positions"
            )
        if preamble_tokens + 2 > max_tokens:
            raise ValueError(
                f"a preamble of {preamble_tokens} tokens leaves no room for prompt and reply in "
                f"max_tokens={max_tokens}"
            )
        columns = -(-max_tokens // PAGE_TOKENS)
        page_bytes = PAGE_TOKENS * kv.token_bytes(config)
        long = max_tokens >= _LONG
        cpu = jax.default_backend() == "cpu"
        stretch_pages = (_CPU_STRETCH_PAGES if cpu else _STRETCH_PAGES)[long]
        pages = 1 + columns * (slots + -(-slots // 2))
        if cache_bytes is not None:
            pages = cache_bytes // page_bytes
        if pages < 1 + columns:
            raise ValueError(
                f"cache_bytes={cache_bytes} holds no sequence of max_tokens={max_tokens}: "
                f"that takes {(1 + columns) * page_bytes} bytes"
            )
        return cls(
            slots=slots,
            max_tokens=max_tokens,
            page_tokens=PAGE_TOKENS,
            pages=pages,
            stretch_pages=stretch_pages,
            prefill_stretches=_PREFILL_STRETCHES[long],
            prefill_batches=_PREFILL_BATCHES,
            prefill_together=_TOGETHER[long],
            steps=steps,
            slots_apart=in_cache(config),
            preamble_tokens=preamble_tokens,
        )


def in_cache(config: ModelConfig) -> bool:
    """Whether a CPU computes, and the weights of the policy stay in its cache."""
    read = config.num_layers * flops.layer_weights(config) + config.d_model * config.vocab_size
    return jax.default_backend() == "cpu" and read * config.itemsize <= _IN_CACHE
