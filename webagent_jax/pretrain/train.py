"""Training of webagent-tiny from random parameters on generated exercises."""

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
from webagent_jax.policy import ModelConfig, prompt_record
from webagent_jax.policy.transformer import rope_frequencies
from webagent_jax.pretrain import bpe, pages, tasks, words
from webagent_jax.types import Action, FloatArray, IntArray, Message

_TEMPLATE = prompts.TEMPLATES["compact"]
# Constants of `init_with_induction_heads`.
_EMBED_STD = 0.3  # standard deviation of embeddings; large enough to separate words
_POSITION_BIAS = 10.0  # factor a of the biases of the previous-token heads
_CONTENT_SCALE = 0.1  # factor of the query and key kernels of the previous-token heads
_MATCH_GAIN = 6.0  # factor of the query kernels of the induction heads
_COPY_GAIN = 3.0  # factor of the induction head outputs
_MAX_CONTENT_FREQUENCY = 0.01  # radians per token; slower RoPE dimensions compare contents

_WRONG_TURN_RATE = 0.08  # fraction of conversation turns with a wrong action first
_PAGE_FIRST = "Page, then task."  # system message of the exercises that share one page

# 0.86M params. Two layers suffice to match a phrase to an element; the others combine steps.
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
    """Options of the pretraining run."""

    seed: int = 0
    updates: int = 5000  # optimizer steps
    rows: int = 4  # rows per update; matching phrases needs many updates more than many tokens
    row_tokens: int = 512  # tokens per row
    microbatch: int = 2  # rows per microbatch
    tokenizer_exercises: int = 20_000  # exercises in the training text of the tokenizer
    save_every: int = 500  # updates between saves
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
    """Train the policy and write a Hugging Face directory.

    Args:
        cfg: options of the run.
        directory: output for tokenizer, config.json and model.safetensors. An existing tokenizer is
            reused.
        log: function that prints a line.
    """
    if not (directory / "tokenizer.json").exists():
        log("training the tokenizer")
        bpe.train(_tokenizer_texts(cfg), directory, MODEL.vocab_size)
    tokenizer = ChatTokenizer(directory)
    optimizer = learn.make_optimizer(cfg.optimizer, cfg.updates)
    state = learn.init_state(init_with_induction_heads(MODEL, jax.random.key(cfg.seed)), optimizer)
    train_step = learn.make_train_step(learn.BCLoss(MODEL), optimizer)
    start = time.monotonic()
    losses: list[float] = []
    for update, forest in enumerate(_prefetch(cfg, tokenizer), start=1):
        microbatches = learn.split_microbatches(forest.rows, cfg.microbatch)
        state, sums = train_step(state, learn.FrozenParams(), microbatches)
        losses.append(learn.fetch_metrics(sums)["loss"])
        if update % 100 == 0:
            log(
                f"update {update}/{cfg.updates} loss {np.mean(losses[-100:]):.4f} "
                f"padding {forest.padding_fraction:.2f} {time.monotonic() - start:.0f} s"
            )
        if update % cfg.save_every == 0 or update == cfg.updates:
            policy.save_hf(directory, MODEL, state.params)
            prompt_record.write(directory, "compact")


def init_with_induction_heads(config: ModelConfig, key: jax.Array) -> policy.Params:
    """Initialize params with previous-token and induction heads; all params remain trainable.

    Layer 0 has previous-token heads. With RoPE frequencies w, a key bias of a·(1 | 0) and a query
    bias of a·(cos(-o w) | sin(-o w)) result in the logit a² Σ cos((i - j - o) w), which peaks at
    j = i - o. Head h has the offset h + 1 and writes the attended token into its own subspace.

    Layer 1 has induction heads (Olsson et al. 2022, arXiv 2209.11895). Head 0 attends to positions
    whose previous token equals the current token. Head 2 attends to positions whose token two
    before equals the previous token. Both write the attended token. Only slow RoPE dimensions
    compare contents.

    Without these heads a model of this size does not learn in thousands of updates to match a
    phrase to its element id.
    """
    params = policy.init(config, key)
    rng = np.random.default_rng(0)  # draws the subspaces
    d, e, half = config.d_model, config.head_dim, config.head_dim // 2
    basis = np.linalg.qr(rng.normal(size=(d, d)))[0].astype(np.float32)
    values = np.linalg.qr(rng.normal(size=(d, e)))[0].astype(np.float32)  # token -> head
    # Orthogonal subspaces of the residual stream, one for the output of each head of layer 0.
    slots = [basis[:, h * e : (h + 1) * e] for h in range(config.num_heads)]  # head -> residual
    frequency = rope_frequencies(config)
    # [1, E]: true for dimensions that rotate too slowly to disturb the comparison of contents.
    slow = np.tile(frequency < _MAX_CONTENT_FREQUENCY, 2)[None, :]
    # `policy.init` draws embeddings with a standard deviation of 0.02.
    params["embed"] = params["embed"] * (_EMBED_STD / 0.02)
    # NumPy copies, since JAX arrays are immutable.
    layers = jax.tree.map(np.array, params["layers"])

    # Layer 0: the biases determine the position that a head attends to, contents hardly matter.
    angle = -(1 + np.arange(config.num_heads)[:, None]) * frequency[None]
    layers["q"]["bias"][0] = _POSITION_BIAS * np.concatenate([np.cos(angle), np.sin(angle)], axis=1)
    layers["k"]["bias"][0, :, :half] = _POSITION_BIAS
    layers["q"]["kernel"][0] *= _CONTENT_SCALE
    layers["k"]["kernel"][0] *= _CONTENT_SCALE
    # Both layers read tokens through `values`. In layer 1, keys of key-value head h are the token
    # h + 1 back, read from the slot of head h.
    for kv_head in range(config.num_kv_heads):
        layers["v"]["kernel"][0, :, kv_head] = values
        layers["v"]["kernel"][1, :, kv_head] = values
        layers["k"]["kernel"][1, :, kv_head] = slots[kv_head] * slow
    for head in range(config.num_heads):
        layers["o"]["kernel"][0, head] = slots[head].T
    # Query heads 0 and 1 share key-value head 0, heads 2 and 3 share head 1.
    layers["q"]["kernel"][1, :, 0] = _MATCH_GAIN * values * slow
    layers["q"]["kernel"][1, :, 2] = _MATCH_GAIN * slots[0] * slow
    for head in (0, 2):
        layers["o"]["kernel"][1, head] = _COPY_GAIN * values.T
    params["layers"] = jax.tree.map(jax.numpy.asarray, layers)
    return params


def _prefetch(cfg: PretrainConfig, tokenizer: ChatTokenizer) -> Iterator[learn.Forest]:
    """Yield the batches in order; a thread builds the next one during training."""
    with ThreadPoolExecutor(1) as executor:
        future = executor.submit(batch, cfg, tokenizer, 0)
        for update in range(cfg.updates):
            current = future.result()
            future = executor.submit(batch, cfg, tokenizer, update + 1)
            yield current


def batch(cfg: PretrainConfig, tokenizer: ChatTokenizer, update: int) -> learn.Forest:
    """Return the packed exercises of one update.

    Over the run, pages grow and conversations replace single steps.
    """
    rng = np.random.default_rng([cfg.seed, update])
    # The curriculum ends after 40 % of the updates, with pages of up to 14 elements.
    progress = min(1.0, 2.5 * update / cfg.updates)
    max_elements = 3 + round(11 * progress)
    page_first = 0.95 - 0.80 * progress
    pairs: list[tuple[IntArray, IntArray]] = []
    remaining_tokens = cfg.rows * cfg.row_tokens
    while remaining_tokens > 0:
        new_pairs = (
            _many_instructions(rng, tokenizer, max_elements)
            if rng.random() < page_first
            else _conversation(rng, tokenizer, max_elements)
        )
        new_pairs = [(p, r) for p, r in new_pairs if len(p) + len(r) <= cfg.row_tokens]
        remaining_tokens -= _row_tokens(new_pairs)
        pairs += new_pairs
    return learn.pack_branches(
        _branches(pairs), row_tokens=cfg.row_tokens, row_multiple=cfg.microbatch
    )


def _row_tokens(pairs: list[tuple[IntArray, IntArray]]) -> int:
    """Return the approximate row tokens of prompts that share a prefix, with their responses."""
    if not pairs:
        return 0
    first = pairs[0][0]
    count = len(first)
    for prompt, response in pairs:
        n = min(len(first), len(prompt))
        # Index of the first difference; the appended False is found if there is none.
        shared = int(np.argmin(np.append(first[:n] == prompt[:n], False)))
        count += len(prompt) - shared + len(response)
    return count


def _branches(pairs: list[tuple[IntArray, IntArray]]) -> list[learn.Branch]:
    # The loss is the mean over all response tokens of the update.
    total = sum(len(response) for _, response in pairs)
    return [learn.Branch(p, r, _zeros(r), weight=1 / total, advantage=0.0) for p, r in pairs]


def _zeros(ids: IntArray) -> FloatArray:
    return np.zeros(len(ids), np.float32)


def _many_instructions(
    rng: np.random.Generator, tokenizer: ChatTokenizer, max_elements: int
) -> list[tuple[IntArray, IntArray]]:
    """Return many steps on one page; the page precedes the task, so all share its tokens."""
    page, instructions = tasks.make_instructions(rng, 6, max_elements)
    system = Message("system", _PAGE_FIRST)
    pairs = []
    for instruction in instructions:
        content = pages.text(page) + "\n" + _TEMPLATE.task.format(intent=instruction.words)
        thought = prompts.TaskQuoter(instruction.words).thought(
            instruction.intent_phrase, instruction.thought
        )
        pairs.append(
            (
                tokenizer.prompt_ids([system, Message("user", content)]),
                _response_ids(tokenizer, thought, instruction.action),
            )
        )
    return pairs


def _conversation(
    rng: np.random.Generator, tokenizer: ChatTokenizer, max_elements: int
) -> list[tuple[IntArray, IntArray]]:
    """Return the turns of one exercise, in the format of episodes.

    Some turns have a wrong action first. It is context only, without a loss.
    """
    exercise = tasks.make_exercise(rng, int(rng.integers(1, 6)), max_elements)
    chat = [Message("system", _TEMPLATE.thinking)]
    opening = _TEMPLATE.task.format(intent=exercise.intent)
    quoter = prompts.TaskQuoter(exercise.intent)
    error: str | None = None
    turns = []
    number = 0
    for page, instruction in exercise.steps:
        wrong = tasks.wrong_action(rng, page) if rng.random() < _WRONG_TURN_RATE else None
        for step in (wrong, instruction) if wrong else (instruction,):
            # A wrong step must not change the position of the quoter in the task.
            thought = (
                step.thought if step is wrong else quoter.thought(step.intent_phrase, step.thought)
            )
            response = _response_ids(tokenizer, thought, step.action)
            if step is instruction:
                body = _TEMPLATE.page(number, error, pages.text(page))
                prompt = Message("user", opening + body)
                turns.append((tokenizer.prompt_ids([*chat, prompt]), response))
            # Earlier pages are placeholders, as in episodes.
            history = opening + _TEMPLATE.page(number, error, _TEMPLATE.placeholder)
            chat += [Message("user", history), Message("assistant", "", response)]
            error = tasks.error_text(rng, step) if step is wrong else None
            opening = ""
            number += 1
    return turns


def _response_ids(tokenizer: ChatTokenizer, thought: str, action: Action) -> IntArray:
    return tokenizer.encode_response(prompts.format_response(thought, action, thinking=True))


def _tokenizer_texts(cfg: PretrainConfig) -> Iterator[str]:
    # No update has this index, so the batches do not repeat these exercises.
    rng = np.random.default_rng([cfg.seed, 1 << 31])
    for word in words.COMMON + words.NAMES + words.PLACES:
        yield from (word, word.capitalize(), word.lower())
    # Element ids are likely to be below 100.
    for n in range(100):
        yield f"{n:02d} {n} " * 400
    for _ in range(cfg.tokenizer_exercises):
        exercise = tasks.make_exercise(rng, int(rng.integers(1, 4)))
        yield exercise.intent
        yield pages.text(exercise.steps[0][0])
