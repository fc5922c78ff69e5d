"""Behaviour cloning on demonstrations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import numpy as np

from webagent_jax import checkpoint, demos, learn, policy
from webagent_jax.agent import TEMPLATES, ChatTokenizer
from webagent_jax.collect import collect_demos
from webagent_jax.config import ConfigError, RunConfig
from webagent_jax.demos import Demonstration
from webagent_jax.learn.advantages import Weigh
from webagent_jax.report.progress import NullProgress, Progress
from webagent_jax.stage import check_weights
from webagent_jax.train import hosts, metrics
from webagent_jax.train.folder import open_folder, open_writer
from webagent_jax.train.learner import Learner
from webagent_jax.train.validation import Validation


def bc(cfg: RunConfig, workdir: Path, progress: Progress | None = None) -> Path:
    """Behaviour cloning on expert demonstrations.

    Collects the demonstrations first, unless `workdir/demos` holds them. Writes demos/,
    checkpoints/, metrics.jsonl, tensorboard/ and policy/: the last policy or, where
    `bc.eval_updates` is set, the one that did best on the tasks of the training split that were
    held out for it.

    Returns:
        The Hugging Face directory of the trained policy, `workdir/policy`.

    Raises:
        ConfigError: the workdir holds a run with another config, or one begun with other weights;
            or a turn of a demonstration does not fit `bc.row_tokens`.
        NonFiniteUpdate: loss or gradient is not finite; the last checkpoint is good.
    """
    progress = progress or NullProgress()
    check_weights(cfg)
    open_folder(workdir, cfg)
    if hosts.this() == 0 and not demos.exists(workdir / "demos"):
        collect_demos(cfg, workdir / "demos", progress)
    hosts.wait("demonstrations")
    with ExitStack() as opened:
        learner = opened.enter_context(Learner(cfg, workdir))
        validation = None
        if cfg.bc.eval_updates:
            validation = Validation(cfg, progress, learner.model, learner.snapshot())
            opened.enter_context(validation)
        shown = _shown(workdir / "demos", validation)
        tokenizer = _tokenizer(cfg)
        _check_lengths(cfg, shown, tokenizer, progress)
        forests = demos.batches(
            shown, size=cfg.bc.batch_episodes, epochs=cfg.bc.epochs, seed=cfg.seed
        ).map(partial(make_forest, cfg, learner.row_multiple, tokenizer))
        total = len(forests)
        position = learner.begin(cfg.bc.optimizer, total) or {"update": 0, "best": None}
        done, best = position["update"], position["best"]
        writer = opened.enter_context(closing(open_writer(workdir, cfg)))
        writer.truncate_after(done)
        progress.log(learner.about())
        progress.phase("behaviour cloning", total, "updates", done=done)
        forest: learn.Forest
        for update, forest in enumerate(demos.iterate(forests, begin=done), done + 1):
            stats = learner.clone(learner.even(forest.rows))
            stats |= metrics.of_rows(forest, learner.model.attention)
            last = update == total
            if validation and (update % cfg.bc.eval_updates == 0 or last):
                told = hosts.gather(validation.success_rate(learner.snapshot()))
                success = float(np.mean(told))
                stats["validation/success"] = success
                if best is None or success > best["success"]:
                    best = {"update": update, "success": success}
                    checkpoint.save_params(workdir / "best", learner.state.params)
            writer.write(update, stats)
            progress.advance(tokens=int(np.count_nonzero(forest.rows.weights)))
            if update % cfg.bc.checkpoint_updates == 0 or last:
                learner.save(update, {"update": update, "best": best})
        kept = None
        if best is not None:
            progress.log(f"kept: update {best['update']}, {best['success']:.1%} in validation")
            kept = checkpoint.restore_params(workdir / "best", learner.state.params)
        return learner.export(workdir / "policy", kept)


def _shown(
    directory: Path, validation: Validation | None
) -> demos.Demonstrations | list[Demonstration]:
    """All demonstrations, or those of tasks that are not held out."""
    everything = demos.read(directory)
    if validation is None:
        return everything
    return [demo for demo in everything if demo.task.id not in validation.task_ids]


def _check_lengths(
    cfg: RunConfig, shown: Iterable[Demonstration], tokenizer: ChatTokenizer, progress: Progress
) -> None:
    """Check that a row holds every turn, and log the demonstrations that rollouts cannot repeat.

    Raises:
        ConfigError: a turn is longer than `bc.row_tokens`.
    """
    template = TEMPLATES[cfg.prompt.template]
    lengths = []  # of each demonstration: tokens of prompt and response [turns, 2]
    for demo in shown:
        turns = demos.to_episode(demo, tokenizer, template, cfg.prompt.thinking).turns
        pairs = [(len(turn.prompt_ids), len(turn.completion.token_ids)) for turn in turns]
        lengths.append(np.array(pairs, int).reshape(-1, 2))
    every = np.concatenate([np.zeros((0, 2), int), *lengths])
    prompt, response = every.max(axis=0, initial=0)
    max_new_tokens = cfg.rollout.max_new_tokens
    engine_tokens = prompt + max_new_tokens
    too_long = [np.count_nonzero(demo.sum(axis=1) > cfg.bc.row_tokens) for demo in lengths]
    if any(too_long):
        raise ConfigError(
            f"{sum(too_long)} of {len(every)} turns, in {np.count_nonzero(too_long)} of "
            f"{len(lengths)} demonstrations, do not fit bc.row_tokens={cfg.bc.row_tokens}: "
            f"bc.row_tokens={every.sum(axis=1).max()} holds all.\n"
            f"Rollouts with such prompts need engine.max_tokens={engine_tokens} as well, and "
            "bc.row_tokens and grpo.row_tokens of no less."
        )
    beyond = sum(
        demo[:, 0].max(initial=0) + max_new_tokens > cfg.engine.max_tokens for demo in lengths
    )
    if beyond:
        progress.log(
            f"{beyond} of {len(lengths)} demonstrations have prompts too long for rollouts: "
            f"engine.max_tokens={engine_tokens} holds all"
        )
    beyond = sum(demo[:, 1].max(initial=0) > max_new_tokens for demo in lengths)
    if beyond:
        progress.log(
            f"{beyond} of {len(lengths)} demonstrations have responses too long for rollouts: "
            f"rollout.max_new_tokens={response} holds all"
        )


def make_forest(
    cfg: RunConfig, row_multiple: int, tokenizer: ChatTokenizer, batch: Sequence[Demonstration]
) -> learn.Forest:
    """Of this host's part of the batch, with shares of the whole."""
    template = TEMPLATES[cfg.prompt.template]
    own = [
        demos.to_episode(demo, tokenizer, template, cfg.prompt.thinking)
        for demo in batch[hosts.this() :: hosts.count()]
    ]
    if len(batch) < hosts.count():
        raise ConfigError(
            f"a batch of {len(batch)} demonstrations leaves some of {hosts.count()} hosts without "
            "one: raise bc.batch_episodes"
        )
    return learn.build(
        learn.branches(own, [0.0] * len(own), _token_weights(cfg, batch)),
        row_tokens=cfg.bc.row_tokens,
        row_multiple=row_multiple,
    )


def _token_weights(cfg: RunConfig, batch: Sequence[Demonstration]) -> Weigh:
    """Return the function that weighs the tokens of a part of the batch."""
    if cfg.bc.loss_aggregation == "turn_token_mean":
        return partial(learn.turn_mean_weights, turns=sum(len(demo.turns) for demo in batch))
    return partial(learn.three_level_weights, episodes=len(batch))


def _tokenizer(cfg: RunConfig) -> ChatTokenizer:
    return ChatTokenizer(policy.directory(cfg.policy.path))
