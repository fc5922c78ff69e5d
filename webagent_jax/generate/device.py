"""What runs on the device: prefill of one prompt, its admission to a slot, and decode steps.

All of it is pure functions of params and an explicit `SlotState`. A prompt is prefilled but for its
last token, which is the first that is decoded: so every sampled token, the first too, comes out of
the one decode step.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import Array

from webagent_jax import policy
from webagent_jax.generate import cache as kv
from webagent_jax.generate import sampler
from webagent_jax.policy import ModelConfig, attention
from webagent_jax.policy.transformer import Attend, Block, Params

MAX_STOP_IDS = 8  # per request


class Field(enum.IntEnum):
    """The columns of an admission; floats and the seed travel as their 32-bit patterns."""

    SLOT = 0
    TOKEN = 1  # the last of the prompt: the first one that is decoded
    POSITION = 2  # of that token
    LIMIT = 3  # tokens to sample at most
    SEED_HIGH = 4
    SEED_LOW = 5
    TEMPERATURE = 6
    TOP_P = 7
    STOP = 8  # the first of MAX_STOP_IDS columns, -1 where unused


ADMISSION_WIDTH = Field.STOP + MAX_STOP_IDS


class SlotState(NamedTuple):
    """Everything on the device that outlives a dispatch, for B slots."""

    cache: kv.Cache
    token: Array  # int32 [B] sampled last, not in the cache yet
    position: Array  # int32 [B] of that token in its sequence
    sampled: Array  # int32 [B] tokens sampled so far
    control: Array  # int32 [B, ADMISSION_WIDTH] as admitted


class Emitted(NamedTuple):
    """What one dispatch sampled. Slot b sampled `tokens[: counts[b], b]`."""

    tokens: Array  # int32 [steps, B]
    logp: Array  # float32 [steps, B]
    counts: Array  # int32 [B]
    finished: Array  # bool [B] has met a stop token or its limit
    steps: Array  # int32, decode steps run


def serving_params(config: ModelConfig, params: Params) -> Params:
    """A copy of `params` as decoding reads them fastest, which gives the same bits.

    There is one tree per layer, so that no step slices the stack again; and all but the scales of
    norms, which are used as they are, come in the dtype of the activations, to which every layer
    would cast them.
    """

    def cast(path: tuple[Any, ...], param: Array) -> Array:
        kept = path[-1].key in ("scale", "final_norm")
        return jnp.copy(param) if kept else jnp.array(param, config.dtype)

    params = jax.tree_util.tree_map_with_path(cast, params)
    unstacked = [
        jax.tree.map(lambda stacked, i=i: stacked[i], params["layers"])
        for i in range(config.num_layers)
    ]
    return {**params, "layers": tuple(unstacked)}


def init_state(config: ModelConfig, pages: int, slots: int) -> SlotState:
    return SlotState(
        cache=kv.init(config, pages, slots),
        token=jnp.zeros(slots, jnp.int32),
        position=jnp.zeros(slots, jnp.int32),
        sampled=jnp.zeros(slots, jnp.int32),
        control=jnp.zeros((slots, ADMISSION_WIDTH), jnp.int32),
    )


def prefill(config: ModelConfig, params: Params, tokens: Array, pages: int) -> kv.Cache:
    """The cache of one sequence, tokens int32 [T] with T whole pages, padded to `pages` pages.

    Only keys and values are made: what the last layer does with them is never computed. Padding
    behind the prompt is stored too, and overwritten before anything can see it.
    """
    positions = jnp.arange(len(tokens))[None]
    ends = jnp.full_like(positions, len(tokens))
    causal = attention.IMPLEMENTATIONS[config.attention]

    def layer_attend(_: int) -> Attend:
        return lambda q, k, v: (causal(q, k, v, ends), (k, v))

    _, stored = _run_layers(config, params, (tokens[None], positions), layer_attend)
    return tuple(kv.from_sequence(k, v, pages) for k, v in stored)


def admit(state: SlotState, sequence: kv.Cache, admission: Array) -> SlotState:
    """Puts a prefilled sequence into its slot. `admission` int32 holds the columns of `Field`."""
    slot = admission[Field.SLOT]
    return SlotState(
        cache=kv.insert(state.cache, sequence, slot),
        token=state.token.at[slot].set(admission[Field.TOKEN]),
        position=state.position.at[slot].set(admission[Field.POSITION]),
        sampled=state.sampled.at[slot].set(0),
        control=state.control.at[slot].set(admission),
    )


def decode(
    config: ModelConfig, params: Params, state: SlotState, busy: Array, *, steps: int
) -> tuple[SlotState, Emitted]:
    """Decodes until `steps` steps are done, or every slot, or the first one while others wait.

    Args:
        busy: bool [B + 1]: the slots in use, and whether requests wait for a slot.
        steps: at most so many tokens per slot.
    """
    slots = len(state.token)
    waiting, busy = busy[slots], busy[:slots]
    none = jnp.zeros(slots, bool)
    nothing = Emitted(
        tokens=jnp.zeros((steps, slots), jnp.int32),
        logp=jnp.zeros((steps, slots), jnp.float32),
        counts=jnp.zeros(slots, jnp.int32),
        finished=none,
        steps=jnp.int32(0),
    )

    def goes_on(carry: tuple[SlotState, Emitted]) -> Array:
        emitted = carry[1]
        refill = waiting & jnp.any(emitted.finished)
        return (emitted.steps < steps) & jnp.any(busy & ~emitted.finished) & ~refill

    def step(carry: tuple[SlotState, Emitted]) -> tuple[SlotState, Emitted]:
        state, emitted = carry
        active = busy & ~emitted.finished
        cache, token, logp = _decode_step(config, params, state)
        stop_ids = state.control[:, Field.STOP :]
        stopped = jnp.any(token[:, None] == stop_ids, axis=1)
        last = state.sampled + 1 >= state.control[:, Field.LIMIT]
        state = SlotState(
            cache=cache,
            token=jnp.where(active, token, state.token),
            position=state.position + active,
            sampled=state.sampled + active,
            control=state.control,
        )
        emitted = Emitted(
            tokens=emitted.tokens.at[emitted.steps].set(token),
            logp=emitted.logp.at[emitted.steps].set(logp),
            counts=emitted.counts + active,
            finished=emitted.finished | (active & (stopped | last)),
            steps=emitted.steps + 1,
        )
        return state, emitted

    return jax.lax.while_loop(goes_on, step, (state, nothing))


def _decode_step(
    config: ModelConfig, params: Params, state: SlotState
) -> tuple[kv.Cache, Array, Array]:
    """One token per slot: the grown cache, tokens int32 [B] and their logp float32 [B]."""

    def layer_attend(index: int) -> Attend:
        def attend(q: Array, k: Array, v: Array) -> tuple[Array, kv.LayerCache]:
            layer = kv.write(state.cache[index], k[:, 0], v[:, 0], state.position)
            return kv.attend(q[:, 0], layer, state.position)[:, None], layer

        return attend

    inputs = (state.token[:, None], state.position[:, None])
    hidden, layers = _run_layers(config, params, inputs, layer_attend)
    with jax.named_scope("sample"):
        logits = policy.unembed(params, hidden[:, 0])
        control = state.control

        def as_float(field: Field) -> Array:
            return jax.lax.bitcast_convert_type(control[:, field], jnp.float32)

        seeds = jax.lax.bitcast_convert_type(
            control[:, Field.SEED_HIGH : Field.SEED_LOW + 1], jnp.uint32
        )
        keys = jax.vmap(jax.random.fold_in)(
            jax.random.wrap_key_data(seeds, impl="threefry2x32"), state.sampled
        )
        token, logp = sampler.sample(
            logits, keys, as_float(Field.TEMPERATURE), as_float(Field.TOP_P)
        )
    return layers, token, logp


def _run_layers(
    config: ModelConfig,
    params: Params,
    inputs: tuple[Array, Array],
    layer_attend: Callable[[int], Attend],
) -> tuple[Array, tuple[Any, ...]]:
    """Hidden states [B, T, D] of inputs (tokens, positions) [B, T], and what each layer's attend
    handed back. `params` as of `serving_params`."""
    tokens, positions = inputs
    x = params["embed"][tokens].astype(config.dtype)
    states = []
    for index, layer_params in enumerate(params["layers"]):
        attend = layer_attend(index)
        x, layer_state = Block(config).apply({"params": layer_params}, x, positions, attend)
        states.append(layer_state)
    norm = nn.RMSNorm(epsilon=config.rms_eps, dtype=config.dtype)
    hidden = norm.apply({"params": {"scale": params["final_norm"]}}, x)
    return cast(Array, hidden), tuple(states)
