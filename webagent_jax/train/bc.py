"""Behavior cloning: training loop, validation and the log of decisions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Self

import numpy as np

from webagent_jax import demos, distributed, learn, policy, seeds
from webagent_jax.agent import TEMPLATES, ChatTokenizer
from webagent_jax.collect_demos import collect_demos
from webagent_jax.config import ConfigError, RunConfig
from webagent_jax.demos import Demonstration
from webagent_jax.inference import Engine
from webagent_jax.learn.advantages import Weigh
from webagent_jax.policy import ModelConfig, weights
from webagent_jax.policy.loading import require_local_policy
from webagent_jax.rollout import Job
from webagent_jax.rollout.runtime import Stage, open_engine
from webagent_jax.seeds import Stream
from webagent_jax.tracking import atomic_files
from webagent_jax.tracking.progress import NullProgress, Progress
from webagent_jax.train import metrics
from webagent_jax.train.decisions import DecisionAccuracy, Json
from webagent_jax.train.learner import Learner
from webagent_jax.train.resume import open_folder, open_writer
from webagent_jax.types import PolicySnapshot, Task


def train_bc(cfg: RunConfig, workdir: Path, progress: Progress | None = None) -> Path:
    """Behaviour cloning on expert demonstrations.

    Collects the demonstrations first, unless `workdir/demos` holds them. Writes demos/,
    checkpoints/, metrics.jsonl, decisions.jsonl, tensorboard/ and policy/: the last policy or, with
    validation (`bc.eval_updates`), the one with the highest success rate on held-out tasks of the
    training split.

    Returns:
        The Hugging Face directory of the trained policy, `workdir/policy`.

    Raises:
        ConfigError: the workdir holds a run with another config, or one begun with other weights;
            or a turn of a demonstration does not fit `bc.row_tokens`.
        NonFiniteUpdate: loss or gradient is not finite; the last checkpoint is good.
    """
    progress = progress or NullProgress()
    require_local_policy(cfg)
    open_folder(workdir, cfg)
    if distributed.process_index() == 0 and not demos.exists(workdir / "demos"):
        collect_demos(cfg, workdir / "demos", progress)
    distributed.barrier("demonstrations")
    with ExitStack() as opened:
        learner = opened.enter_context(Learner(cfg, workdir))
        validation = None
        if cfg.bc.eval_updates and cfg.bc.eval_episodes:
            validation = Validation(cfg, progress, learner.model, learner.snapshot())
            opened.enter_context(validation)
        tokenizer = _tokenizer(cfg)
        shown, held_out = _split(cfg, demos.read(workdir / "demos"), validation)
        _check_lengths(cfg, shown, tokenizer, progress)
        decisions = DecisionAccuracy(cfg, tokenizer, {"train": shown, "held_out": held_out})
        forests = demos.batches(
            shown, size=cfg.bc.batch_episodes, epochs=cfg.bc.epochs, seed=cfg.seed
        ).map(partial(make_forest, cfg, learner.row_multiple, tokenizer))
        total = len(forests)
        position = learner.begin(cfg.bc.optimizer, total) or {"update": 0, "best": None}
        done, best = position["update"], position["best"]
        writer = opened.enter_context(closing(open_writer(workdir, cfg)))
        writer.truncate_after(done)
        log = _DecisionLog(workdir, done)
        progress.log(learner.about())
        progress.phase("behaviour cloning", total, "updates", done=done)
        forest: learn.Forest
        for update, forest in enumerate(demos.iterate(forests, begin=done), done + 1):
            stats = learner.clone(learner.even(forest.rows)) | metrics.of_rows(
                forest, learner.model.attention
            )
            last = update == total
            if last or (cfg.bc.eval_updates and update % cfg.bc.eval_updates == 0):
                measured, records = _evaluate(cfg, tokenizer, learner, validation, decisions)
                log.append(update, records)
                stats |= measured
                success = stats.get("validation/success", 0.0)
                if validation and (best is None or success > best["success"]):
                    best = {"update": update, "success": success}
                    weights.save_params(workdir / "best", learner.state.params)
            writer.write(update, stats)
            progress.advance(tokens=int(np.count_nonzero(forest.rows.weights)))
            if update % cfg.bc.checkpoint_updates == 0 or last:
                learner.save(update, {"update": update, "best": best})
        kept = None
        if best is not None:
            progress.log(f"kept: update {best['update']}, {best['success']:.1%} in validation")
            kept = weights.restore_params(workdir / "best", learner.state.params)
        return learner.export(workdir / "policy", kept)


def _split(
    cfg: RunConfig, demonstrations: demos.Demonstrations, validation: Validation | None
) -> tuple[demos.Demonstrations | list[Demonstration], list[Demonstration]]:
    """Return the demonstrations to train on, and those that are held out.

    Held out are the ones of validation tasks, and `bc.held_out_demos` others.

    Raises:
        ConfigError: none is left to train on.
    """
    tasks = frozenset() if validation is None else validation.task_ids
    if not (tasks or cfg.bc.held_out_demos):
        return demonstrations, []
    others = [demo for demo in demonstrations if demo.task.id not in tasks]
    held_out = [demo for demo in demonstrations if demo.task.id in tasks]
    if cfg.bc.held_out_demos >= len(others):
        raise ConfigError(
            f"bc.held_out_demos={cfg.bc.held_out_demos} leaves none of {len(others)} "
            "demonstrations to train on: lower it, or collect more (bc.demos_per_task)"
        )
    order = seeds.generator(cfg.seed, Stream.HELD_OUT).permutation(len(others))
    cut = np.sort(order[: cfg.bc.held_out_demos])
    held_out += [others[i] for i in cut]
    return [others[i] for i in np.sort(order[cfg.bc.held_out_demos :])], held_out


def _evaluate(
    cfg: RunConfig,
    tokenizer: ChatTokenizer,
    learner: Learner,
    validation: Validation | None,
    decisions: DecisionAccuracy,
) -> tuple[dict[str, float], list[Json]]:
    """Return validation success, decision accuracy, and the records of the latter."""
    snapshot = learner.snapshot()
    if validation is None:
        if not cfg.bc.eval_decisions:
            return {}, []
        with open_engine(cfg, tokenizer, learner.model, snapshot) as engine:
            return decisions.measure(engine)
    with validation.engine(snapshot) as engine:
        stats, records = decisions.measure(engine)
        success = distributed.allgather(validation.success_rate())
    return stats | {"validation/success": float(np.mean(success))}, records


class _DecisionLog:
    """Log of the decisions of this process; records after update `done` are removed."""

    def __init__(self, workdir: Path, done: int) -> None:
        suffix = f"-host-{distributed.process_index()}" if distributed.process_index() else ""
        self._path = workdir / f"decisions{suffix}.jsonl"
        atomic_files.filter_jsonl(self._path, lambda record: record["update"] <= done)

    def append(self, update: int, records: list[Json]) -> None:
        atomic_files.append_jsonl(self._path, [{"update": update} | record for record in records])


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
        for demo in batch[distributed.process_index() :: distributed.process_count()]
    ]
    if len(batch) < distributed.process_count():
        raise ConfigError(
            f"a batch of {len(batch)} demonstrations is smaller than the number of processes, "
            f"{distributed.process_count()}: raise bc.batch_episodes"
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


class Validation:
    """Plays `bc.eval_episodes` training tasks, the same ones each time: use `with`."""

    def __init__(
        self, cfg: RunConfig, progress: Progress, model: ModelConfig, snapshot: PolicySnapshot
    ) -> None:
        self._cfg = cfg
        self._stage = Stage(cfg, progress, model, snapshot)
        draw = seeds.generator(cfg.seed, Stream.BC_VALIDATION)
        names = self._stage.suite.names("train")
        self._tasks = [
            self._stage.suite.task(name, "train", int(draw.integers(cfg.suite.train_seeds)))
            for name in draw.permutation(np.resize(names, cfg.bc.eval_episodes))
        ]
        self._stage.engine.release()

    @property
    def task_ids(self) -> frozenset[str]:
        """No demonstration of these may be learned from."""
        return frozenset(task.id for task in self._tasks)

    @contextmanager
    def engine(self, snapshot: PolicySnapshot) -> Iterator[Engine]:
        """Return the engine with these params; its cache is released on exit."""
        self._stage.update_policy(snapshot)
        self._stage.engine.resume()
        try:
            yield self._stage.engine
        finally:
            self._stage.engine.release()

    def success_rate(self) -> float:
        """Return the success rate in [0, 1] over the tasks with a reward; call it in `engine`.

        Responses are sampled as in evaluation.
        """
        episodes = self._stage.play(self._job(at, task) for at, task in enumerate(self._tasks))
        rewards = [e.reward for e in episodes if e.reward is not None]
        return float(np.mean(rewards)) if rewards else 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stage.__exit__(*error)

    def _job(self, number: int, task: Task) -> Job:
        return Job(
            task,
            seeds.derive(self._cfg.seed, Stream.BC_VALIDATION, number),
            self._stage.rules(self._cfg.rollout.max_turns, evaluation=True),
            lambda: self._stage.policy_agent(evaluation=True),
        )
