"""Device functions of the engine: prefill of shared prefix and prompts, and decode steps.

All functions are pure: they depend on params, KV cache and a control row per slot. Prefill excludes
the last token of a prompt, which is the input of the first decode step. So the decode step samples
every token, the first one included. Array shapes are static; the numbers of batches and page-table
columns are dynamic, so prompts of any length use the same program.

With speculative decoding (Leviathan et al., arXiv 2211.17192), a decode step of a slot computes its
last token and K draft tokens together, and samples after each. A token after a draft counts only if
the draft was sampled too. The random key of a token depends on its index alone, so the draft
tokens change the number of steps, and the completion by rounding only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from webagent_jax import policy
from webagent_jax.inference import kv_cache as kv
from webagent_jax.inference import prompt_lookup, sampler
from webagent_jax.inference.engine_shapes import EngineShapes
from webagent_jax.inference.paged_attention import AttentionMetadata
from webagent_jax.inference.prefix_cache import NULL_PAGE
from webagent_jax.inference.slot_control import ChunkField, SlotField, SlotMode
from webagent_jax.policy import ModelConfig, attention
from webagent_jax.policy.transformer import (
    AttentionFn,
    Params,
    apply_block,
    final_norm,
    rope_angles,
)

PagedAttentionFn = Callable[
    [Array, kv.LayerKVPages, kv.LayerSharedPrefix | None, AttentionMetadata], Array
]
"""`paged_attention.paged_attention` with its static options."""


class ServedPolicy(NamedTuple):
    """Params of one policy version and the shared prefix computed with them."""

    params: Params  # params in the layout of `serving_params.serving_params`
    shared_prefix: kv.SharedPrefix  # keys and values of the shared prefix; empty without one

    def layer_prefix(self, layer: int) -> kv.LayerSharedPrefix | None:
        """Return the keys and values of the shared prefix in one layer; None without a prefix."""
        return self.shared_prefix[layer] if self.shared_prefix else None


class DecodeState(NamedTuple):
    """Device state that persists across dispatches, for B slots."""

    pages: kv.KVPages  # KV cache
    token: Array  # int32 [B], last sampled token, not yet in the cache
    position: Array  # int32 [B], position of that token in its sequence
    num_sampled: Array  # int32 [B], number of tokens sampled so far
    is_active: Array  # bool [B], whether the slot has reached neither a stop token nor its limit
    history: Array  # int32 [B, L], tokens of prompt and response; L is 0 without draft tokens


class DecodeInput(NamedTuple):
    """Input of one dispatch from the host: arrays of NumPy, or of JAX inside of the program."""

    control: Any  # int32 [B, SlotField.TABLE + P], control rows (`slot_control.SlotField`)
    has_queue: Any  # bool, whether requests wait for a slot
    prompts: Any  # int32 [B, L], tokens of the starting sequences; L is 0 without draft tokens
    recent: Any  # int32 [R], recent responses; R is 0 without draft tokens


class DecodeOutput(NamedTuple):
    """Tokens sampled by one dispatch; slot b sampled `tokens[: counts[b], b]`.

    N is the maximum number of tokens per slot: the steps times the tokens per step.
    """

    tokens: Array  # int32 [N, B], token ids
    logp: Array  # float32 [N, B], log-probability under the policy
    # float32 [N, B], log-probability under the tempered and filtered distribution.
    sampling_logp: Array
    counts: Array  # int32 [B], number of tokens per slot
    is_finished: Array  # bool [B], whether the slot has reached a stop token or its limit
    steps: Array  # int32, number of decode steps
    slot_steps: Array  # int32, number of decode steps, summed over the active slots


def init_state(config: ModelConfig, shapes: EngineShapes) -> DecodeState:
    """Return the state of an engine with idle slots and zero-filled pages."""
    slots = shapes.slots
    return DecodeState(
        pages=kv.init_pages(config, shapes.num_pages, shapes.page_tokens, shapes.kv_layout),
        token=jnp.zeros(slots, jnp.int32),
        position=jnp.zeros(slots, jnp.int32),
        num_sampled=jnp.zeros(slots, jnp.int32),
        is_active=jnp.zeros(slots, bool),
        history=jnp.zeros((slots, shapes.history_tokens), jnp.int32),
    )


def compute_shared_prefix(config: ModelConfig, params: Params, tokens: Array) -> kv.SharedPrefix:
    """Return the keys and values of the shared prefix, token ids int32 [A]."""
    length = len(tokens)
    # An ordinary causal row.
    ends = jnp.full((1, length), length)

    def layer_attend(_: int) -> AttentionFn:
        def attend(q: Array, k: Array, v: Array) -> tuple[Array, kv.LayerSharedPrefix]:
            # From [1, A, K, E] to keys [K, E, A] and values [K, A, E].
            prefix = kv.LayerSharedPrefix(k[0].transpose(1, 2, 0), v[0].swapaxes(0, 1))
            return attention.dense(q, k, v, ends), prefix

        return attend

    return _run_layers(config, params, (tokens[None], jnp.arange(length)[None]), layer_attend)[1]


def prefill(
    config: ModelConfig,
    served: ServedPolicy,
    pages: kv.KVPages,
    chunks: Array,
    count: Array,
    *,
    chunk_pages: tuple[int, ...],
    attend_to_pages: PagedAttentionFn,
) -> kv.KVPages:
    """Fill pages with the keys and values of prompts, one batch of chunks after another.

    All batches have the same shape, and chunks of different prompts do not affect each other. So
    results are bitwise identical in any batch. A batch may contain consecutive chunks of a prompt,
    since a layer stores all keys before it attends. The attention output of the last layer is
    unused and never computed. Padding after a prompt is stored in pages of the prompt or in
    NULL_PAGE, and overwritten before any query attends to it.

    Args:
        config: architecture of the policy.
        served: params and shared prefix.
        pages: KV cache.
        chunks: int32 [batches, M, ChunkField.TOKENS + Q * S + P], padded with NULL_PAGE.
        count: number of batches that are not padding.
        chunk_pages: allowed sizes of a chunk in pages, ascending to Q. A batch uses the smallest
            size that fits its chunks; results are bitwise identical with all sizes.
        attend_to_pages: `paged_attention.paged_attention` with its options.
    """
    page_tokens = kv.page_tokens(pages[0])
    table = ChunkField.TOKENS + chunk_pages[-1] * page_tokens

    def fill(num_pages: int, pages: kv.KVPages, batch: Array) -> kv.KVPages:
        """Process one batch with `num_pages` pages per chunk."""
        start = batch[:, ChunkField.START, None]
        length = num_pages * page_tokens
        tokens = batch[:, ChunkField.TOKENS : ChunkField.TOKENS + length]
        tables = batch[:, table:]
        prefix_len = batch[:, ChunkField.PREFIX_LEN]
        # [M, T] in the prompt's own tokens; the rotary positions below include the shared prefix.
        positions = start + jnp.arange(length)[None]
        columns = start // page_tokens + jnp.arange(num_pages)[None]
        # [M, num_pages]; columns after the page table contain only padding and use NULL_PAGE.
        own_pages = jnp.take_along_axis(tables, columns, axis=1, mode="fill", fill_value=NULL_PAGE)
        num_columns = jnp.minimum(jnp.max(columns) + 1, tables.shape[1])
        metadata = AttentionMetadata(tables, positions, num_columns, prefix_len > 0)

        def layer_attend(layer: int) -> AttentionFn:
            def attend(q: Array, k: Array, v: Array) -> tuple[Array, kv.LayerKVPages]:
                layer_pages = kv.write_pages(pages[layer], k, v, own_pages)
                prefix = served.layer_prefix(layer)
                return attend_to_pages(q, layer_pages, prefix, metadata), layer_pages

            return attend

        inputs = (tokens, prefix_len[:, None] + positions)
        return _run_layers(config, served.params, inputs, layer_attend)[1]

    def fill_batch(index: Array, pages: kv.KVPages) -> kv.KVPages:
        batch = chunks[index]
        if len(chunk_pages) == 1:
            return fill(chunk_pages[0], pages, batch)
        max_pages = jnp.max(batch[:, ChunkField.PAGES])
        # Index of the smallest size that fits the largest chunk of the batch.
        size_index = jnp.sum(max_pages > jnp.array(chunk_pages[:-1], jnp.int32))
        # lax.cond would copy all pages; a loop of zero or one iterations does not.
        for choice, num_pages in enumerate(chunk_pages):

            def fill_once(_: Array, pages: kv.KVPages, num_pages: int = num_pages) -> kv.KVPages:
                return fill(num_pages, pages, batch)

            pages = jax.lax.fori_loop(0, jnp.int32(size_index == choice), fill_once, pages)
        return pages

    return jax.lax.fori_loop(0, count, fill_batch, pages)


def decode(
    config: ModelConfig,
    served: ServedPolicy,
    state: DecodeState,
    inputs: DecodeInput,
    *,
    steps: int,
    num_speculative_tokens: int,
    refill_slots: int,
    sequential_slots: bool,
    attend_to_pages: PagedAttentionFn,
) -> tuple[DecodeState, DecodeOutput]:
    """Run up to `steps` decode steps and return the new state and the sampled tokens.

    Decoding stops early when every slot is finished, or `refill_slots` of them while requests wait.

    Args:
        config: architecture of the policy.
        served: params and shared prefix.
        state: state after the previous dispatch.
        inputs: control rows and context of the draft tokens.
        steps: maximum number of steps.
        num_speculative_tokens: draft tokens per slot and step; 0: no speculative decoding.
        refill_slots: number of finished slots at which waiting requests interrupt the steps.
        sequential_slots: whether the layers process the slots one after another. The cost of the
            layers is then proportional to the number of active slots; the unembedding, which is
            most of the params of a small policy, is read once for all slots. In both modes a slot
            gets the same bits whatever the other slots contain.
        attend_to_pages: `paged_attention.paged_attention` with its options.
    """
    run_layers = _decode_layers_sequentially if sequential_slots else _decode_layers
    slots, control = len(state.token), inputs.control
    # Tokens per slot and step: the last sampled token and the draft.
    width = 1 + num_speculative_tokens
    mode = control[:, SlotField.MODE]
    is_starting = mode == SlotMode.STARTING
    # The device may have finished a slot that the host still sends as RUNNING: it stays inactive.
    state = state._replace(
        token=jnp.where(is_starting, control[:, SlotField.TOKEN], state.token),
        position=jnp.where(is_starting, control[:, SlotField.POSITION], state.position),
        num_sampled=jnp.where(is_starting, control[:, SlotField.SAMPLED], state.num_sampled),
        is_active=is_starting | (state.is_active & (mode == SlotMode.RUNNING)),
        history=jnp.where(is_starting[:, None], inputs.prompts, state.history),
    )
    no_output = DecodeOutput(
        tokens=jnp.zeros((steps * width, slots), jnp.int32),
        logp=jnp.zeros((steps * width, slots), jnp.float32),
        sampling_logp=jnp.zeros((steps * width, slots), jnp.float32),
        counts=jnp.zeros(slots, jnp.int32),
        is_finished=jnp.zeros(slots, bool),
        steps=jnp.int32(0),
        slot_steps=jnp.int32(0),
    )

    def should_continue(carry: tuple[DecodeState, DecodeOutput]) -> Array:
        state, output = carry
        can_refill = inputs.has_queue & (jnp.sum(output.is_finished) >= refill_slots)
        return (output.steps < steps) & jnp.any(state.is_active) & ~can_refill

    def step(carry: tuple[DecodeState, DecodeOutput]) -> tuple[DecodeState, DecodeOutput]:
        state, output = carry
        batch = _step_inputs(state, inputs, num_speculative_tokens)
        pages, hidden = run_layers(config, served, state.pages, batch, attend_to_pages)
        sample = _sample(config, served.params, hidden, batch)
        stop_ids = control[:, SlotField.STOP : SlotField.TABLE]
        is_stop = jnp.any(sample.token[:, :, None] == stop_ids[:, None], axis=2)
        # A sample is valid if the inputs up to its own were sampled, none of them a stop token.
        is_accepted = (sample.token[:, :-1] == batch.token[:, 1:]) & ~is_stop[:, :-1]
        is_accepted = jnp.pad(is_accepted, ((0, 0), (1, 0)), constant_values=True)
        is_valid = jnp.cumprod(batch.is_used & is_accepted, axis=1).astype(bool)
        count = jnp.sum(is_valid, axis=1)  # 1 or more for an active slot
        is_last = state.num_sampled + count >= control[:, SlotField.LIMIT]
        is_finished = state.is_active & (is_last | jnp.any(is_stop & is_valid, axis=1))
        last = jnp.maximum(count - 1, 0)[:, None]
        token = jnp.take_along_axis(sample.token, last, axis=1)[:, 0]
        slot = jnp.arange(slots)[:, None]
        # Indices outside the arrays are dropped.
        row = output.counts[:, None] + jnp.arange(width)[None]
        row = jnp.where(is_valid, row, steps * width)
        column = jnp.where(is_valid, batch.position + 1, state.history.shape[1])
        output = DecodeOutput(
            tokens=output.tokens.at[row, slot].set(sample.token, mode="drop"),
            logp=output.logp.at[row, slot].set(sample.logp, mode="drop"),
            sampling_logp=output.sampling_logp.at[row, slot].set(sample.sampling_logp, mode="drop"),
            counts=output.counts + count,
            is_finished=output.is_finished | is_finished,
            steps=output.steps + 1,
            slot_steps=output.slot_steps + jnp.sum(state.is_active),
        )
        history = state.history
        if num_speculative_tokens:
            history = history.at[slot, column].set(sample.token, mode="drop")
        state = DecodeState(
            pages=pages,
            token=jnp.where(state.is_active, token, state.token),
            position=state.position + count,
            num_sampled=state.num_sampled + count,
            is_active=state.is_active & ~is_finished,
            history=history,
        )
        return state, output

    return jax.lax.while_loop(should_continue, step, (state, no_output))


class _StepInputs(NamedTuple):
    """Inputs of one decode step: T tokens of each slot, its last one and the draft."""

    token: Array  # int32 [B, T]
    position: Array  # int32 [B, T], positions in the sequence
    num_sampled: Array  # int32 [B, T], number of tokens sampled before the sample of each input
    is_used: Array  # bool [B, T], whether the slot is active and may sample after the input
    control: Array  # int32 [B, SlotField.TABLE + P], control rows


def _step_inputs(
    state: DecodeState, inputs: DecodeInput, num_speculative_tokens: int
) -> _StepInputs:
    """Return the inputs of the next step."""
    token, offset = state.token[:, None], jnp.arange(1 + num_speculative_tokens)[None]
    if num_speculative_tokens:
        draft = prompt_lookup.propose(
            inputs.recent, state.history, state.position + 1, num_speculative_tokens
        )
        token = jnp.concatenate([token, draft], axis=1)
    num_sampled = state.num_sampled[:, None] + offset
    return _StepInputs(
        token,
        state.position[:, None] + offset,
        num_sampled,
        # Pages are allocated up to the limit.
        state.is_active[:, None] & (num_sampled < inputs.control[:, SlotField.LIMIT, None]),
        inputs.control,
    )


def _decode_layers_sequentially(
    config: ModelConfig,
    served: ServedPolicy,
    pages: kv.KVPages,
    inputs: _StepInputs,
    attend_to_pages: PagedAttentionFn,
) -> tuple[kv.KVPages, Array]:
    """Run `_decode_layers` for one active slot after another; inactive slots return zeros."""
    is_active = inputs.is_used[:, 0]
    # Active slots first: the loop below ends after the last of them.
    order = jnp.argsort(~is_active, stable=True)

    def decode_slot(index: Array, carry: tuple[kv.KVPages, Array]) -> tuple[kv.KVPages, Array]:
        pages, hidden = carry
        slot = order[index]

        def take_slot(x: Array) -> Array:
            return jax.lax.dynamic_slice_in_dim(x, slot, 1)

        slot_inputs = _StepInputs(*map(take_slot, inputs))
        pages, slot_hidden = _decode_layers(config, served, pages, slot_inputs, attend_to_pages)
        return pages, jax.lax.dynamic_update_slice_in_dim(hidden, slot_hidden, slot, axis=0)

    zeros = jnp.zeros((*inputs.token.shape, config.d_model), config.dtype)
    return jax.lax.fori_loop(0, jnp.sum(is_active), decode_slot, (pages, zeros))


def _decode_layers(
    config: ModelConfig,
    served: ServedPolicy,
    pages: kv.KVPages,
    inputs: _StepInputs,
    attend_to_pages: PagedAttentionFn,
) -> tuple[kv.KVPages, Array]:
    """Return the pages and the hidden states [B, T, D] of B slots, computed together."""
    tables = inputs.control[:, SlotField.TABLE :]
    prefix_len = inputs.control[:, SlotField.PREFIX_LEN]
    position = inputs.position - prefix_len[:, None]  # index among the sequence's own tokens
    page_tokens = kv.page_tokens(pages[0])
    column, offset = position // page_tokens, position % page_tokens
    page = jnp.take_along_axis(tables, column, axis=1, mode="clip")
    # The positions of inactive slots are stale, and drafts may exceed the limit: these tokens are
    # written to NULL_PAGE.
    page = jnp.where(inputs.is_used, page, NULL_PAGE).reshape(-1)
    num_columns = jnp.max(jnp.where(inputs.is_used, column + 1, 0))
    metadata = AttentionMetadata(tables, position, num_columns, prefix_len > 0)

    def layer_attend(layer: int) -> AttentionFn:
        def attend(q: Array, k: Array, v: Array) -> tuple[Array, kv.LayerKVPages]:
            # From [B, T, K, E] to [B * T, K, E].
            k, v = (x.reshape(-1, *x.shape[2:]) for x in (k, v))
            layer_pages = pages[layer].write_tokens(k, v, page, offset.reshape(-1))
            prefix = served.layer_prefix(layer)
            return attend_to_pages(q, layer_pages, prefix, metadata), layer_pages

        return attend

    hidden, pages = _run_layers(
        config, served.params, (inputs.token, inputs.position), layer_attend
    )
    return pages, hidden


@jax.named_scope("sample")
def _sample(
    config: ModelConfig, params: Params, hidden: Array, inputs: _StepInputs
) -> sampler.SampledToken:
    """Sample a token after each input from its hidden state [B, T, D]; arrays are [B, T]."""
    (batch, width), control = inputs.token.shape, inputs.control

    def per_input(values: Array) -> Array:
        """Repeat values [B, ...] of slots for their inputs, [B * T, ...]."""
        return jnp.repeat(values, width, axis=0)

    def as_float(field: SlotField) -> Array:
        return jax.lax.bitcast_convert_type(control[:, field], jnp.float32)

    # The key of a token depends on the seed and its index only, never on the slot or the batch.
    seeds = jax.lax.bitcast_convert_type(
        control[:, SlotField.SEED_HIGH : SlotField.SEED_LOW + 1], jnp.uint32
    )
    keys = jax.vmap(jax.random.fold_in)(
        jax.random.wrap_key_data(per_input(seeds), impl="threefry2x32"),
        inputs.num_sampled.reshape(-1),
    )
    is_active = inputs.is_used[:, 0]
    sample = sampler.sample(
        policy.unembed(config, params, hidden.reshape(batch * width, -1)),
        keys,
        temperature=per_input(as_float(SlotField.TEMPERATURE)),
        # Inactive slots must not trigger the filters, which are expensive.
        top_p=per_input(jnp.where(is_active, as_float(SlotField.TOP_P), 1.0)),
        top_k=per_input(jnp.where(is_active, control[:, SlotField.TOP_K], 0)),
    )
    return sampler.SampledToken(*(x.reshape(batch, width) for x in sample))


def _run_layers(
    config: ModelConfig,
    params: Params,
    inputs: tuple[Array, Array],
    layer_attend: Callable[[int], AttentionFn],
) -> tuple[Array, tuple[Any, ...]]:
    """Return the hidden states [B, T, D] and the attention state of each layer.

    Args:
        config: architecture of the policy.
        params: params in the layout of `serving_params.serving_params`.
        inputs: tokens and positions, [B, T] each.
        layer_attend: returns the attention function of a layer.
    """
    tokens, positions = inputs
    x, angles = params["embed"][tokens].astype(config.dtype), rope_angles(config, positions)
    states = []
    for index, layer_params in enumerate(params["layers"]):
        x, layer_state = apply_block(config, layer_params, x, angles, layer_attend(index))
        states.append(layer_state)
    return final_norm(config, params, x), tuple(states)
