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
from webagent_jax.pretrain import bpe, pages, tasks, words
from webagent_jax.types import FloatArray, IntArray, Message

_TEMPLATE = prompts.TEMPLATES["compact"]
_PAGE_FIRST = "Page, then task."  # system message of the exercises that share one page

# 0.85M params. Two layers are enough to point; the third composes.
MODEL = ModelConfig(
    vocab_size=2048,
    d_model=128,
    num_layers=3,
    num_heads=4,
    num_kv_heads=2,
    head_dim=32,
    d_ff=384,
    rope_theta=10_000.0,
    max_positions=2048,
)


@dataclass(frozen=True)
class PretrainConfig:
    seed: int = 0
    updates: int = 1500
    rows: int = 16
    row_tokens: int = 320
    microbatch: int = 4
    tokenizer_exercises: int = 20_000
    save_every: int = 250
    optimizer: OptimizerConfig = dataclasses.field(
        default_factory=lambda: OptimizerConfig(
            learning_rate=2e-3,
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
        if update % 50 == 0:
            log(
                f"update {update}/{cfg.updates} loss {np.mean(losses[-50:]):.4f} "
                f"padding {forest.padding_fraction:.2f} {time.monotonic() - begun:.0f} s"
            )
        if update % cfg.save_every == 0 or update == cfg.updates:
            policy.save_hf(directory, MODEL, state.params)


def newborn(config: ModelConfig, key: jax.Array, sharpness: float = 6.0) -> policy.transformer.Params:
    """Fresh params whose first layer is born looking back: head h attends to the token h + 1 before.

    With RoPE frequencies w, a key bias of a·(1 | 0) and a query bias of a·(cos(-o w) | sin(-o w)) give
    the logit a² Σ cos((i - j - o) w), which peaks at j = i - o. Without such heads a model of this
    size does not find how to match a phrase to its element id within thousands of updates.
    """
    params = policy.init(config, key)
    half = config.head_dim // 2
    frequency = config.rope_theta ** (-np.arange(half) / half)
    k_bias = np.zeros((config.num_kv_heads, config.head_dim), np.float32)
    k_bias[:, :half] = sharpness
    offset = 1 + np.arange(config.num_heads)[:, None]
    angle = -offset * frequency[None]
    q_bias = sharpness * np.concatenate([np.cos(angle), np.sin(angle)], axis=1)
    layers = params["layers"]
    layers["k"]["bias"] = layers["k"]["bias"].at[0].set(k_bias)
    layers["q"]["bias"] = layers["q"]["bias"].at[0].set(q_bias.astype(np.float32))
    params["embed"] = params["embed"] * (0.3 / 0.02)  # words far enough apart to be told apart
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
    progress = update / cfg.updates
    most = 4 + int(min(1.0, 2 * progress) * 10)
    page_first = 0.8 - 0.6 * min(1.0, 2 * progress)
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
    return learn.build(
        _weighted(pairs), row_tokens=cfg.row_tokens, row_multiple=cfg.microbatch
    )


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
    page, orders = tasks.orders_on_one_page(rng, 10, most)
    opening = pages.text(page)
    return [
        (
            tokenizer.prompt_ids(
                [Message("system", _PAGE_FIRST), Message("user", f"{opening}\n{order.words}")]
            ),
            _reply(tokenizer, order),
        )
        for order in orders
    ]


def _conversation(
    rng: np.random.Generator, tokenizer: ChatTokenizer, most: int
) -> list[tuple[IntArray, IntArray]]:
    """The turns of one exercise, in the form that episodes have."""
    exercise = tasks.exercise(rng, int(rng.integers(1, 5)), most)
    chat = [Message("system", _TEMPLATE.thinking)]
    opening = _TEMPLATE.task.format(intent=exercise.intent)
    turns = []
    for number, (page, order) in enumerate(exercise.steps):
        now = Message("user", opening + _TEMPLATE.page(number, None, pages.text(page)))
        reply = _reply(tokenizer, order)
        turns.append((tokenizer.prompt_ids([*chat, now]), reply))
        past = opening + _TEMPLATE.page(number, None, _TEMPLATE.placeholder)
        chat += [Message("user", past), Message("assistant", "", reply)]
        opening = ""
    return turns


def _reply(tokenizer: ChatTokenizer, order: tasks.Order) -> IntArray:
    return tokenizer.encode_reply(prompts.reply_text(order.thought, order.action, thinking=True))


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
