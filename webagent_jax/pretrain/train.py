"""Training webagent-tiny from nothing on generated exercises."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np

from webagent_jax import learn, policy
from webagent_jax.agent import ChatTokenizer, prompts
from webagent_jax.config import OptimizerConfig
from webagent_jax.policy import ModelConfig
from webagent_jax.policy.transformer import rope_frequencies
from webagent_jax.pretrain import bpe, pages, tasks, words
from webagent_jax.types import Action, FloatArray, IntArray, Message

_TEMPLATE = prompts.TEMPLATES["compact"]
_EMBED_STD = 0.3  # words far enough apart to be told apart
_SHARPNESS = 10.0  # a of the heads that look back
_QUIET = 0.1  # of what tokens add to where those heads look
_GAIN = 6.0  # of the comparison over a plain projection
_WRITE = 1.0  # of what those heads write, so that a token still weighs as much itself
_COPY = 3.0  # of what is copied
_SLOW = 0.01  # radians per token: a head dimension that turns no faster compares contents
_SLIPS = 0.08  # of the turns of a conversation
_PAGE_FIRST = "Page, then task."  # system message of the exercises that share one page

# 0.86M params. Two layers are enough to point; the others compose.
MODEL = ModelConfig(
    vocab_size=2048,
    d_model=128,
    num_layers=4,
    num_heads=4,
    num_kv_heads=2,
    head_dim=32,
    d_ff=256,
    rope_theta=100_000.0,
    max_positions=2048,
)


@dataclass(frozen=True)
class PretrainConfig:
    seed: int = 0
    updates: int = 5000
    rows: int = 4  # many small updates: pointing needs steps more than tokens
    row_tokens: int = 512
    microbatch: int = 2
    tokenizer_exercises: int = 20_000
    save_every: int = 500
    optimizer: OptimizerConfig = dataclasses.field(
        default_factory=lambda: OptimizerConfig(
            learning_rate=2.5e-3,
            schedule="cosine",
            warmup_fraction=0.04,
            weight_decay=0.01,
            max_grad_norm=1.0,
        )
    )


def pretrain(cfg: PretrainConfig, directory: Path, log: Callable[[str], None] = print) -> None:
    """Writes a Hugging Face directory: tokenizer, config.json, model.safetensors."""
    if not (directory / "tokenizer.json").exists():
        log("training the tokenizer")
        bpe.train(_tokenizer_texts(cfg), directory, MODEL.vocab_size)
    tokenizer = ChatTokenizer(directory)
    optimizer = learn.make_optimizer(cfg.optimizer, cfg.updates)
    state = learn.init_state(newborn(MODEL, jax.random.key(cfg.seed)), optimizer)
    begun = time.monotonic()
    losses: list[float] = []
    for update, forest in enumerate(_prefetched(cfg, tokenizer), start=1):
        state, metrics = learn.bc_update(
            MODEL, optimizer, state, forest.rows, microbatch=cfg.microbatch
        )
        losses.append(metrics["loss"])
        if update % 100 == 0:
            log(
                f"update {update}/{cfg.updates} loss {np.mean(losses[-100:]):.4f} "
                f"padding {forest.padding_fraction:.2f} {time.monotonic() - begun:.0f} s"
            )
        if update % cfg.save_every == 0 or update == cfg.updates:
            policy.save_hf(directory, MODEL, state.params)


def newborn(config: ModelConfig, key: jax.Array) -> policy.Params:
    """Fresh params, born with the two circuits that pointing rests on; all of it trainable.

    Layer 0 looks back: with RoPE frequencies w, a key bias of a·(1 | 0) and a query bias of
    a·(cos(-o w) | sin(-o w)) give the logit a² Σ cos((i - j - o) w), with its peak at j = i - o.
    Head h gets the offset h + 1 and writes the token it sees into a subspace of its own.

    Layer 1 continues what was seen before (induction; Olsson et al. 2022, arXiv 2209.11895): head 0
    attends where the token before is the current one, head 2 where the token two before is the one
    before, and both write the token they find. Only dimensions that RoPE hardly turns compare.

    Without them a model of this size does not find in thousands of updates how to match a phrase to
    its element id.
    """
    params = policy.init(config, key)
    rng = np.random.default_rng(0)  # of the subspaces; any will do
    d, e, half = config.d_model, config.head_dim, config.head_dim // 2
    basis = np.linalg.qr(rng.normal(size=(d, d)))[0].astype(np.float32)
    seen = np.linalg.qr(rng.normal(size=(d, e)))[0].astype(np.float32)  # token -> head
    slots = [basis[:, h * e : (h + 1) * e] for h in range(config.num_heads)]  # head -> residual
    frequency = rope_frequencies(config)
    slow = np.tile(frequency < _SLOW, 2)[None, :]
    params["embed"] = params["embed"] * (_EMBED_STD / 0.02)
    born = jax.tree.map(np.array, params["layers"])

    angle = -(1 + np.arange(config.num_heads)[:, None]) * frequency[None]
    born["q"]["bias"][0] = _SHARPNESS * np.concatenate([np.cos(angle), np.sin(angle)], axis=1)
    born["k"]["bias"][0, :, :half] = _SHARPNESS
    born["q"]["kernel"][0] *= _QUIET
    born["k"]["kernel"][0] *= _QUIET
    for kv_head in range(config.num_kv_heads):
        born["v"]["kernel"][0, :, kv_head] = seen
        born["v"]["kernel"][1, :, kv_head] = seen
        born["k"]["kernel"][1, :, kv_head] = slots[kv_head] * slow
    for head in range(config.num_heads):
        born["o"]["kernel"][0, head] = _WRITE * slots[head].T
    born["q"]["kernel"][1, :, 0] = _GAIN * seen * slow
    born["q"]["kernel"][1, :, 2] = _GAIN * slots[0] * slow
    for head in (0, 2):
        born["o"]["kernel"][1, head] = _COPY * seen.T
    params["layers"] = jax.tree.map(jax.numpy.asarray, born)
    return params


def _prefetched(cfg: PretrainConfig, tokenizer: ChatTokenizer) -> Iterator[learn.Forest]:
    """The batches in order, each made while the one before it is trained on."""
    with ThreadPoolExecutor(1) as maker:
        following = maker.submit(batch, cfg, tokenizer, 0)
        for update in range(cfg.updates):
            current = following.result()
            following = maker.submit(batch, cfg, tokenizer, update + 1)
            yield current


def batch(cfg: PretrainConfig, tokenizer: ChatTokenizer, update: int) -> learn.Forest:
    """The exercises of one update: pages grow, and single orders give way to conversations."""
    rng = np.random.default_rng([cfg.seed, update])
    grown = min(1.0, 2.5 * update / cfg.updates)
    most = 3 + round(11 * grown)
    page_first = 0.95 - 0.80 * grown
    pairs: list[tuple[IntArray, IntArray]] = []
    room = cfg.rows * cfg.row_tokens
    while room > 0:
        fresh = (
            _many_orders(rng, tokenizer, most)
            if rng.random() < page_first
            else _conversation(rng, tokenizer, most)
        )
        fresh = [(p, r) for p, r in fresh if len(p) + len(r) <= cfg.row_tokens]
        room -= _cost(fresh)
        pairs += fresh
    return learn.build(_weighted(pairs), row_tokens=cfg.row_tokens, row_multiple=cfg.microbatch)


def _cost(pairs: list[tuple[IntArray, IntArray]]) -> int:
    """Tokens of a row that prompts with a common start take together, about."""
    if not pairs:
        return 0
    first = pairs[0][0]
    cost = len(first)
    for prompt, reply in pairs:
        n = min(len(first), len(prompt))
        same = int(np.argmin(np.append(first[:n] == prompt[:n], False)))
        cost += len(prompt) - same + len(reply)
    return cost


def _weighted(pairs: list[tuple[IntArray, IntArray]]) -> list[learn.Branch]:
    total = sum(len(reply) for _, reply in pairs)
    return [learn.Branch(p, r, _zeros(r), weight=1 / total, advantage=0.0) for p, r in pairs]


def _zeros(ids: IntArray) -> FloatArray:
    return np.zeros(len(ids), np.float32)


def _many_orders(
    rng: np.random.Generator, tokenizer: ChatTokenizer, most: int
) -> list[tuple[IntArray, IntArray]]:
    """One page, told first, and many orders on it: they share its tokens."""
    page, orders = tasks.orders_on_one_page(rng, 6, most)
    opening = Message("system", _PAGE_FIRST)
    pairs = []
    for order in orders:
        told = pages.text(page) + "\n" + _TEMPLATE.task.format(intent=order.words)
        thought = prompts.TaskReader(order.words).thought(order.about, order.thought)
        pairs.append(
            (
                tokenizer.prompt_ids([opening, Message("user", told)]),
                _reply(tokenizer, thought, order.action),
            )
        )
    return pairs


def _conversation(
    rng: np.random.Generator, tokenizer: ChatTokenizer, most: int
) -> list[tuple[IntArray, IntArray]]:
    """The turns of one exercise, in the form that episodes have.

    Here and there a turn goes wrong first. Nobody learns that turn, only what to do after it.
    """
    exercise = tasks.exercise(rng, int(rng.integers(1, 6)), most)
    chat = [Message("system", _TEMPLATE.thinking)]
    opening = _TEMPLATE.task.format(intent=exercise.intent)
    reader = prompts.TaskReader(exercise.intent)
    error: str | None = None
    turns = []
    number = 0
    for page, order in exercise.steps:
        wrong = tasks.slip(rng, page) if rng.random() < _SLIPS else None
        for made in (wrong, order) if wrong else (order,):
            thought = made.thought if made is wrong else reader.thought(made.about, made.thought)
            reply = _reply(tokenizer, thought, made.action)
            if made is order:
                body = _TEMPLATE.page(number, error, pages.text(page))
                now = Message("user", opening + body)
                turns.append((tokenizer.prompt_ids([*chat, now]), reply))
            past = opening + _TEMPLATE.page(number, error, _TEMPLATE.placeholder)
            chat += [Message("user", past), Message("assistant", "", reply)]
            error = tasks.complaint(rng, made) if made is wrong else None
            opening = ""
            number += 1
    return turns


def _reply(tokenizer: ChatTokenizer, thought: str, action: Action) -> IntArray:
    return tokenizer.encode_reply(prompts.reply_text(thought, action, thinking=True))


def _tokenizer_texts(cfg: PretrainConfig) -> Iterator[str]:
    rng = np.random.default_rng([cfg.seed, 1 << 31])
    for word in words.COMMON + words.NAMES + words.PLACES:
        yield from (word, word.capitalize(), word.lower())
    for n in range(100):  # every element id that is likely to occur
        yield f"{n:02d} {n} " * 400
    for _ in range(cfg.tokenizer_exercises):
        exercise = tasks.exercise(rng, int(rng.integers(1, 4)))
        yield exercise.intent
        yield pages.text(exercise.steps[0][0])
