"""What runs on the device: prefill of the preamble and of the pages of prompts, and decode steps.

All of it is pure functions of params, the cache and a few numbers per slot. A prompt is prefilled
but for its last token, which is the first that is decoded: so every sampled token, the first too,
comes out of the one decode step. Shapes are fixed, numbers of batches and columns of pages are
not: prompts of any length take the same program.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from webagent_jax import policy
from webagent_jax.inference import kv_cache as kv
from webagent_jax.inference import sampler
from webagent_jax.inference.engine_shapes import Sizes
from webagent_jax.inference.prefix_cache import TRASH
from webagent_jax.inference.slot_control import Field, Mode, StretchField
from webagent_jax.policy import ModelConfig, attention
from webagent_jax.policy.transformer import Attend, Params, apply_block, final_norm, rotation_at

_DECODE_TOGETHER = 2  # columns of pages that attention takes at once
_WIDENING = ("gate", "up")  # of the layers' kernels, those with more outputs than inputs


class Served(NamedTuple):
    """One version of the policy."""

    params: Params  # as of `serving_params`
    preamble: kv.Preamble  # computed by them; empty where prompts have none in common

    def before(self, layer: int) -> kv.LayerPreamble | None:
        return self.preamble[layer] if self.preamble else None


class SlotState(NamedTuple):
    """Everything on the device that outlives a dispatch, for B slots."""

    pages: kv.Pages
    token: Array  # int32 [B] sampled last, not in the cache yet
    position: Array  # int32 [B] of that token in its sequence
    sampled: Array  # int32 [B] tokens sampled so far
    active: Array  # bool [B] has met neither a stop token nor its limit


class Emitted(NamedTuple):
    """What one dispatch sampled. Slot b sampled `tokens[: counts[b], b]`."""

    tokens: Array  # int32 [steps, B]
    logp: Array  # float32 [steps, B] under the policy
    sampling_logp: Array  # float32 [steps, B] under the distribution that was drawn from
    counts: Array  # int32 [B]
    finished: Array  # bool [B] has met a stop token or its limit
    steps: Array  # int32, decode steps run


def serving_params(config: ModelConfig, params: Params) -> Params:
    """A copy of `params` as decoding reads them fastest.

    There is one tree per layer, so that no step slices the stack again; all but the scales of
    norms, which are used as they are, come in the dtype of the activations, to which every layer
    would cast them; and kernels that widen lie on their side, see `on_their_side`.
    """

    def cast(path: tuple[Any, ...], param: Array) -> Array:
        kept = path[-1].key in ("scale", "final_norm")
        return jnp.copy(param) if kept else jnp.array(param, config.dtype)

    params = jax.tree_util.tree_map_with_path(cast, params)
    unstacked = [
        jax.tree.map(lambda stacked, i=i: stacked[i], params["layers"])
        for i in range(config.num_layers)
    ]
    turned = tuple(on_their_side(layer, jnp.transpose) for layer in unstacked)
    return {**params, "layers": turned}


def on_their_side(layer: Params, turn: Callable[[Any], Any]) -> Params:
    """A layer whose widening kernels are turned, from [in, out] to [out, in] and back again.

    XLA makes the turn back a part of the product. With few rows on CPU, a product that reads what
    it sums up along memory is a fifth faster.
    """
    kernels = {name: {**layer[name], "kernel": turn(layer[name]["kernel"])} for name in _WIDENING}
    return {**layer, **kernels}


def init_state(config: ModelConfig, sizes: Sizes) -> SlotState:
    slots = sizes.slots
    return SlotState(
        pages=kv.init(config, sizes.pages, sizes.page_tokens),
        token=jnp.zeros(slots, jnp.int32),
        position=jnp.zeros(slots, jnp.int32),
        sampled=jnp.zeros(slots, jnp.int32),
        active=jnp.zeros(slots, bool),
    )


def preamble(config: ModelConfig, params: Params, tokens: Array) -> kv.Preamble:
    """Keys and values of int32 [A], that sequences begin with."""
    length = len(tokens)
    ends = jnp.full((1, length), length)

    def layer_attend(_: int) -> Attend:
        def attend(q: Array, k: Array, v: Array) -> tuple[Array, kv.LayerPreamble]:
            stored = kv.LayerPreamble(k[0].transpose(1, 2, 0), v[0].swapaxes(0, 1))
            return attention.dense(q, k, v, ends), stored

        return attend

    return _run_layers(config, params, (tokens[None], jnp.arange(length)[None]), layer_attend)[1]


def prefill(
    config: ModelConfig,
    served: Served,
    pages: kv.Pages,
    wanted: Array,
    count: Array,
    *,
    stretch_pages: tuple[int, ...],
    together: int,
) -> kv.Pages:
    """Fills pages with the keys and values of prompts, so many together, batch after batch.

    Every batch is one computation of one shape, in which no stretch knows of those of other
    prompts: a prompt gets the same bits in any company. A stretch may follow another of the same
    prompt in the same batch, since a layer stores all keys before it attends. What the last layer
    does with keys and values is never computed. Padding behind a prompt is stored too, in pages of
    its own or the trash, and overwritten before anything can see it.

    Args:
        wanted: int32 [batches, M, StretchField.TOKENS + Q * S + P]; padded with trash.
        count: batches that are not padding.
        stretch_pages: how many a stretch may have, the largest being Q. A batch takes the fewest
            that hold what is in it; a token gets the same bits in all of them.
        together: columns of pages that attention takes at once.
    """
    page_tokens = pages[0].keys.shape[-1]
    table = StretchField.TOKENS + stretch_pages[-1] * page_tokens

    def fill(held: int, pages: kv.Pages, batch: Array) -> kv.Pages:
        """With so many pages to a stretch."""
        start = batch[:, StretchField.START, None]
        length = held * page_tokens
        tokens = batch[:, StretchField.TOKENS : StretchField.TOKENS + length]
        tables = batch[:, table:]
        after = batch[:, StretchField.BEFORE]
        positions = start + jnp.arange(length)[None]
        column = start // page_tokens + jnp.arange(held)[None]
        own = jnp.take_along_axis(tables, column, axis=1, mode="fill", fill_value=TRASH)
        columns = jnp.minimum(jnp.max(column) + 1, tables.shape[1])
        reach = kv.Reach(tables, positions, columns, after > 0)

        def layer_attend(layer: int) -> Attend:
            def attend(q: Array, k: Array, v: Array) -> tuple[Array, kv.LayerPages]:
                filled = kv.write_pages(pages[layer], k, v, own)
                return kv.attend(q, filled, served.before(layer), reach, together=together), filled

            return attend

        inputs = (tokens, after[:, None] + positions)
        return _run_layers(config, served.params, inputs, layer_attend)[1]

    def one(index: Array, pages: kv.Pages) -> kv.Pages:
        batch = wanted[index]
        if len(stretch_pages) == 1:
            return fill(stretch_pages[0], pages, batch)
        needed = jnp.max(batch[:, StretchField.PAGES])
        fewest = jnp.sum(needed > jnp.array(stretch_pages[:-1], jnp.int32))
        # Loops of one turn or none: XLA copies all pages for a conditional, and none for these.
        for choice, held in enumerate(stretch_pages):

            def once(_: Array, pages: kv.Pages, held: int = held) -> kv.Pages:
                return fill(held, pages, batch)

            pages = jax.lax.fori_loop(0, jnp.int32(fewest == choice), once, pages)
        return pages

    return jax.lax.fori_loop(0, count, one, pages)


def decode(
    config: ModelConfig,
    served: Served,
    state: SlotState,
    control: Array,
    waiting: Array,
    *,
    steps: int,
    slots_apart: bool,
) -> tuple[SlotState, Emitted]:
    """Decodes until `steps` steps are done, or every slot, or the first one while others wait.

    Args:
        control: int32 [B, Field.TABLE + P], see `Field`.
        waiting: bool, whether requests wait for a slot.
        steps: at most so many tokens per slot.
        slots_apart: whether the layers take one slot after the other, and not all at once.
    """
    slots = len(state.token)
    mode = control[:, Field.MODE]
    begins = mode == Mode.ADMITTED
    state = state._replace(
        token=jnp.where(begins, control[:, Field.TOKEN], state.token),
        position=jnp.where(begins, control[:, Field.POSITION], state.position),
        sampled=jnp.where(begins, control[:, Field.SAMPLED], state.sampled),
        active=begins | (state.active & (mode == Mode.RUNNING)),
    )
    nothing = Emitted(
        tokens=jnp.zeros((steps, slots), jnp.int32),
        logp=jnp.zeros((steps, slots), jnp.float32),
        sampling_logp=jnp.zeros((steps, slots), jnp.float32),
        counts=jnp.zeros(slots, jnp.int32),
        finished=jnp.zeros(slots, bool),
        steps=jnp.int32(0),
    )

    def goes_on(carry: tuple[SlotState, Emitted]) -> Array:
        state, emitted = carry
        refill = waiting & jnp.any(emitted.finished)
        return (emitted.steps < steps) & jnp.any(state.active) & ~refill

    def step(carry: tuple[SlotState, Emitted]) -> tuple[SlotState, Emitted]:
        state, emitted = carry
        active = state.active
        pages, drawn = _decode_step(config, served, state, control, slots_apart)
        stop_ids = control[:, Field.STOP : Field.TABLE]
        stopped = jnp.any(drawn.token[:, None] == stop_ids, axis=1)
        last = state.sampled + 1 >= control[:, Field.LIMIT]
        finished = active & (stopped | last)
        state = SlotState(
            pages=pages,
            token=jnp.where(active, drawn.token, state.token),
            position=state.position + active,
            sampled=state.sampled + active,
            active=active & ~finished,
        )
        emitted = Emitted(
            tokens=emitted.tokens.at[emitted.steps].set(drawn.token),
            logp=emitted.logp.at[emitted.steps].set(drawn.logp),
            sampling_logp=emitted.sampling_logp.at[emitted.steps].set(drawn.sampling_logp),
            counts=emitted.counts + active,
            finished=emitted.finished | finished,
            steps=emitted.steps + 1,
        )
        return state, emitted

    return jax.lax.while_loop(goes_on, step, (state, nothing))


def _decode_step(
    config: ModelConfig, served: Served, state: SlotState, control: Array, apart: bool
) -> tuple[kv.Pages, sampler.Drawn]:
    """One token per slot, and the pages with the one before.

    Where the layers take slots `apart`, they cost by how many are active. The vocabulary, which is
    most of the weights of a small policy, is read once for all. Either way, a slot gets the same
    bits whoever else is there.
    """
    layers = _decode_layers_apart if apart else _decode_layers
    pages, hidden = layers(config, served, state, control)
    return pages, _sample(served.params, hidden, state, control)


def _decode_layers_apart(
    config: ModelConfig, served: Served, state: SlotState, control: Array
) -> tuple[kv.Pages, Array]:
    """`_decode_layers`, one active slot after the other; zeros for those that are not."""
    order = jnp.argsort(~state.active, stable=True)

    def one(index: Array, carry: tuple[kv.Pages, Array]) -> tuple[kv.Pages, Array]:
        pages, hidden = carry
        slot = order[index]

        def part(x: Array) -> Array:
            return jax.lax.dynamic_slice_in_dim(x, slot, 1)

        alone = SlotState(pages, *map(part, state[1:]))
        pages, new = _decode_layers(config, served, alone, part(control))
        return pages, jax.lax.dynamic_update_slice_in_dim(hidden, new, slot, axis=0)

    nothing = jnp.zeros((len(state.token), config.d_model), config.dtype)
    return jax.lax.fori_loop(0, jnp.sum(state.active), one, (state.pages, nothing))


def _decode_layers(
    config: ModelConfig, served: Served, state: SlotState, control: Array
) -> tuple[kv.Pages, Array]:
    """The pages, and hidden states [B, D], of B slots that are computed together."""
    tables, after = control[:, Field.TABLE :], control[:, Field.BEFORE]
    position = state.position - after  # among its own tokens
    page_tokens = state.pages[0].keys.shape[-1]
    column, offset = position // page_tokens, position % page_tokens
    own = jnp.take_along_axis(tables, column[:, None], axis=1, mode="clip")[:, 0]
    own = jnp.where(state.active, own, TRASH)
    columns = jnp.max(jnp.where(state.active, column + 1, 0))
    reach = kv.Reach(tables, position[:, None], columns, after > 0)

    def layer_attend(layer: int) -> Attend:
        def attend(q: Array, k: Array, v: Array) -> tuple[Array, kv.LayerPages]:
            grown = kv.write_tokens(state.pages[layer], k[:, 0], v[:, 0], own, offset)
            seen = kv.attend(q, grown, served.before(layer), reach, together=_DECODE_TOGETHER)
            return seen, grown

        return attend

    inputs = (state.token[:, None], state.position[:, None])
    hidden, pages = _run_layers(config, served.params, inputs, layer_attend)
    return pages, hidden[:, 0]


@jax.named_scope("sample")
def _sample(params: Params, hidden: Array, state: SlotState, control: Array) -> sampler.Drawn:
    """A token for each slot, by its hidden state [B, D]."""

    def as_float(field: Field) -> Array:
        return jax.lax.bitcast_convert_type(control[:, field], jnp.float32)

    seeds = jax.lax.bitcast_convert_type(
        control[:, Field.SEED_HIGH : Field.SEED_LOW + 1], jnp.uint32
    )
    keys = jax.vmap(jax.random.fold_in)(
        jax.random.wrap_key_data(seeds, impl="threefry2x32"), state.sampled
    )
    return sampler.sample(
        policy.unembed(params, hidden),
        keys,
        temperature=as_float(Field.TEMPERATURE),
        # A slot that nobody looks at must not ask for the filters, which are dear.
        top_p=jnp.where(state.active, as_float(Field.TOP_P), 1.0),
        top_k=jnp.where(state.active, control[:, Field.TOP_K], 0),
    )


def _run_layers(
    config: ModelConfig,
    params: Params,
    inputs: tuple[Array, Array],
    layer_attend: Callable[[int], Attend],
) -> tuple[Array, tuple[Any, ...]]:
    """Hidden states [B, T, D] of inputs (tokens, positions) [B, T], and what each layer's attend
    handed back. `params` as of `serving_params`."""
    tokens, positions = inputs
    x, rotation = params["embed"][tokens].astype(config.dtype), rotation_at(config, positions)
    states = []
    for index, stored in enumerate(params["layers"]):
        layer_params = on_their_side(stored, jnp.transpose)
        x, layer_state = apply_block(config, layer_params, x, rotation, layer_attend(index))
        states.append(layer_state)
    return final_norm(config, params, x), tuple(states)
