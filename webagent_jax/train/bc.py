"""Behavior cloning: training loop, validation and log of decisions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from webagent_jax import demos, distributed, learn, policy, seeds
from webagent_jax.agent import ChatTokenizer
from webagent_jax.collect_demos import collect_demos
from webagent_jax.config import ConfigError, RunConfig
from webagent_jax.demos import Demonstration
from webagent_jax.learn.advantages import TokenWeightFn
from webagent_jax.learn.forest import stack_rows
from webagent_jax.policy import prompt_record
from webagent_jax.policy.loading import require_local_policy
from webagent_jax.rollout.runtime import RolloutRuntime, check_engine, make_engine, prompt_format
from webagent_jax.seeds import RandomStream
from webagent_jax.tracking import atomic_files
from webagent_jax.tracking.progress import NullProgress, Progress
from webagent_jax.train import metrics
from webagent_jax.train.decisions import DecisionAccuracy, Json
from webagent_jax.train.learner import Learner
from webagent_jax.train.resume import init_shared_workdir, open_process_writer
from webagent_jax.train.validation import BestPolicy, Validation
from webagent_jax.types import Episode, Task


def train_bc(cfg: RunConfig, workdir: Path, progress: Progress | None = None) -> Path:
    """Train by behavior cloning on expert demonstrations.

    Collects the demonstrations first unless `workdir/demos` contains them. Writes demos/,
    checkpoints/, metrics.jsonl, decisions.jsonl, tensorboard/ and policy/. The exported policy is
    the last one. With validation (`bc.eval_interval`) it is the one with the highest success rate
    on held-out tasks of the training split.

    Returns:
        The Hugging Face directory of the trained policy, `workdir/policy`.

    Raises:
        ConfigError: the workdir contains a run with another config or from other weights; or a turn
            of a demonstration does not fit `bc.row_tokens`.
        NonFiniteStepError: loss or gradient is not finite; the last checkpoint is valid.
        PreemptedError: SIGTERM arrived; the last update has a checkpoint.
    """
    progress = progress or NullProgress()
    progress.plan(expected_work(cfg))
    require_local_policy(cfg)
    cfg = prompt_record.with_template(cfg)
    init_shared_workdir(workdir, cfg, "train bc")
    # 1. Collect.
    _collect_missing_demos(cfg, workdir / "demos", progress)
    with ExitStack() as stack:
        learner = stack.enter_context(Learner(cfg, workdir))
        if cfg.bc.eval_decisions:
            # The engine is needed after the last update: fail before the first.
            check_engine(cfg, learner.model)
        # 2. Select the validation tasks before the split, which holds out their demonstrations.
        validation = _make_validation(cfg, learner, progress, stack)
        tokenizer = _tokenizer(cfg)
        validation_tasks = () if validation is None else validation.tasks
        train, held_out = _split(cfg, demos.read(workdir / "demos"), validation_tasks, progress)
        _check_lengths(cfg, train, tokenizer, progress)
        decisions = DecisionAccuracy(cfg, tokenizer, {"train": train, "held_out": held_out})
        # 3. Define the batches; they are read and packed on access.
        forests = demos.make_batches(
            train, size=cfg.bc.batch_episodes, epochs=cfg.bc.epochs, seed=cfg.seed
        ).random_map(
            partial(make_forest, cfg, learner.packing_options, tokenizer),
            seed=seeds.derive_seed(cfg.seed, RandomStream.BC_TURNS),
        )
        total = len(forests)
        loss_fn = learn.BCLoss(learner.model, learner.mesh)
        loop_state = learner.restore_or_init(loss_fn, cfg.bc.optimizer, total)
        demos_checksum = _check_demos(workdir, loop_state)
        done = loop_state.get("update", 0)
        best = BestPolicy(workdir / "best", loop_state.get("best"))
        writer = stack.enter_context(open_process_writer(workdir, cfg, done))
        step_writer = metrics.StepWriter(writer)
        log = _DecisionLog(workdir, done)
        _log_devices(cfg, learner, progress)
        progress.start_phase("behavior cloning", total, "updates", done=done)
        forest: learn.Forest
        for update, forest in enumerate(demos.iterate(forests, start=done), done + 1):
            # 4. Train. `step` only dispatches; `step_writer` reads the metrics one update later.
            pending = learner.step(learner.pad_across_processes(forest.rows))
            stats = metrics.packing_metrics(forest, learner.model.attention)
            is_last = update == total
            if is_last or (cfg.bc.eval_interval and update % cfg.bc.eval_interval == 0):
                eval_stats, records = _evaluate(cfg, tokenizer, learner, validation, decisions)
                log.append(update, records)
                stats |= eval_stats
                best.add(update, stats, learner.state.params, progress)
            step_writer.write(update, pending, stats)
            progress.advance(tokens=int(np.count_nonzero(forest.rows.loss_weights)))
            if is_last or learner.needs_checkpoint(update, cfg.bc.checkpoint_interval):
                # Metrics before the checkpoint: a run resumed from it does not write them again.
                step_writer.flush()
                learner.save(
                    update,
                    {
                        "update": update,
                        "best": best.record_for_checkpoint(),
                        "demos_checksum": demos_checksum,
                    },
                )
            learner.stop_if_preempted(update)
        return learner.export(workdir / "policy", best.restore(learner.state.params, progress))


def expected_work(cfg: RunConfig) -> dict[str, float]:
    """Return the expected duration of each phase for one task, in episodes of the policy."""
    demonstrations = float(cfg.bc.demos_per_task)
    return {
        "demonstrations": demonstrations,
        # From the quickstart in docs/results.md; only the estimate of remaining time depends on it.
        "behavior cloning": 0.8 * demonstrations * cfg.bc.epochs,
    }


def _log_devices(cfg: RunConfig, learner: Learner, progress: Progress) -> None:
    """Log mesh and attention, and the number of processes without demonstrations."""
    progress.log(learner.describe())
    num_idle = distributed.process_count() - cfg.bc.batch_episodes
    if num_idle > 0:
        progress.log(
            f"{num_idle} of {distributed.process_count()} processes have no demonstration of a "
            f"batch: raise bc.batch_episodes={cfg.bc.batch_episodes}"
        )


def _collect_missing_demos(cfg: RunConfig, directory: Path, progress: Progress) -> None:
    # One process collects; all processes read the same files after the barrier.
    if distributed.process_index() == 0:
        if not demos.exists(directory):
            collect_demos(cfg, directory, progress)
        elif not directory.with_name("checkpoints").exists():
            progress.log(
                f"training on the demonstrations in {directory}: options of their collection "
                "(bc.demos_per_task, bc.expert_thoughts, bc.mistake_rate) have no effect"
            )
    distributed.barrier("demonstrations")


def _check_demos(workdir: Path, loop_state: Mapping[str, Any]) -> str:
    """Return the checksum of the demonstrations, which must be that of the start of the run.

    The order of the batches depends on all demonstrations.

    Raises:
        ConfigError: the demonstrations have changed.
    """
    checksum = demos.checksum(workdir / "demos")
    # The state of a new run is empty.
    if loop_state.get("demos_checksum", checksum) != checksum:
        raise ConfigError(
            f"the demonstrations in {workdir / 'demos'} have changed since this run began: copy "
            "them to demos/ of another workdir, and train there"
        )
    return checksum


def _make_validation(
    cfg: RunConfig, learner: Learner, progress: Progress, stack: ExitStack
) -> Validation | None:
    """Return the validation of the run, whose runtime `stack` closes; None without validation."""
    if not (cfg.bc.eval_interval and cfg.bc.eval_episodes):
        return None
    runtime = RolloutRuntime(cfg, progress, learner.model, learner.snapshot())
    stack.enter_context(runtime)
    # Training uses the memory of the KV cache until the first validation.
    runtime.engine.sleep()
    return Validation(cfg, runtime, cfg.bc.eval_episodes)


def _split(
    cfg: RunConfig,
    demonstrations: demos.Demonstrations,
    validation_tasks: Sequence[Task],
    progress: Progress,
) -> tuple[demos.Demonstrations | list[Demonstration], list[Demonstration]]:
    """Return the demonstrations to train on, and the held-out ones.

    The held-out ones are those of validation tasks, and `bc.held_out_demos` others.

    Raises:
        ConfigError: no demonstration remains to train on.
    """
    # Nothing is held out: keep the dataset on disk instead of a list in memory.
    if not (validation_tasks or cfg.bc.held_out_demos):
        return demonstrations, []
    task_ids = {task.id for task in validation_tasks}
    suites = {task.suite for task in validation_tasks}
    # Empty for a task whose intent is known only after a reset.
    intents = {_normalize(task.intent) for task in validation_tasks} - {""}
    others: list[Demonstration] = []
    held_out: list[Demonstration] = []
    for demo in demonstrations:
        # If a name is a single task, the ids of its other seeds are its id with a suffix.
        is_held_out = bool({demo.task.id, demo.task.id.rpartition("/")[0]} & task_ids)
        # Imported demonstrations have other ids. Within a suite, tasks may share an intent.
        if demo.task.suite not in suites:
            is_held_out |= _normalize(demo.intent) in intents
        (held_out if is_held_out else others).append(demo)
    if validation_tasks and not held_out:
        progress.log(
            f"none of {len(demonstrations)} demonstrations is known to be of a validation task, "
            "so none is held out for validation"
        )
    if cfg.bc.held_out_demos >= len(others):
        raise ConfigError(
            f"none of {len(demonstrations)} demonstrations remains to train on: {len(held_out)} "
            f"are of validation tasks, and bc.held_out_demos={cfg.bc.held_out_demos}. Lower "
            "bc.eval_episodes or bc.held_out_demos, or collect more (bc.demos_per_task)"
        )
    order = seeds.make_generator(cfg.seed, RandomStream.HELD_OUT).permutation(len(others))
    # Sorted, so that both parts keep the order of the dataset.
    held_out_indices = np.sort(order[: cfg.bc.held_out_demos])
    held_out += [others[i] for i in held_out_indices]
    return [others[i] for i in np.sort(order[cfg.bc.held_out_demos :])], held_out


def _normalize(intent: str) -> str:
    """Return an instruction without differences in case, spaces and the final period."""
    return " ".join(intent.casefold().split()).rstrip(".")


def _evaluate(
    cfg: RunConfig,
    tokenizer: ChatTokenizer,
    learner: Learner,
    validation: Validation | None,
    decisions: DecisionAccuracy,
) -> tuple[dict[str, float], list[Json]]:
    """Return the metrics of validation and decision accuracy, and a record of each decision."""
    snapshot = learner.snapshot()
    if validation is None:
        if not cfg.bc.eval_decisions:
            return {}, []
        # Without validation there is no runtime; the engine exists for the decisions only.
        with make_engine(cfg, tokenizer, learner.model, snapshot) as engine:
            return decisions.measure(engine)
    with validation.awake_engine(snapshot) as engine:
        stats, records = decisions.measure(engine)
        return stats | validation.measure(), records


class _DecisionLog:
    """Log of the decisions of this process; records after update `done` are removed."""

    def __init__(self, workdir: Path, done: int) -> None:
        suffix = f"-process-{distributed.process_index()}" if distributed.process_index() else ""
        self._path = workdir / f"decisions{suffix}.jsonl"
        atomic_files.filter_jsonl(self._path, lambda record: record["update"] <= done)

    def append(self, update: int, records: list[Json]) -> None:
        atomic_files.append_jsonl(self._path, [{"update": update} | record for record in records])


def _check_lengths(
    cfg: RunConfig, train: Iterable[Demonstration], tokenizer: ChatTokenizer, progress: Progress
) -> None:
    """Check that every turn fits a row, and log the demonstrations that rollouts cannot repeat.

    Raises:
        ConfigError: a turn is longer than `bc.row_tokens`.
    """
    prompt = prompt_format(cfg)
    # Prompt and response tokens [turns, 2] of each demonstration.
    lengths = []
    for demo in train:
        turns = demos.to_episode(demo, tokenizer, prompt).turns
        pairs = [(len(turn.prompt_ids), len(turn.completion.token_ids)) for turn in turns]
        lengths.append(np.array(pairs, int).reshape(-1, 2))
    # [turns, 2] over all demonstrations; the empty array is for a `train` without any.
    turn_lengths = np.concatenate([np.zeros((0, 2), int), *lengths])
    longest_prompt, response = turn_lengths.max(axis=0, initial=0)
    max_new_tokens = cfg.rollout.max_new_tokens
    engine_tokens = longest_prompt + max_new_tokens
    # Number of turns of each demonstration that do not fit a row.
    too_long = [np.count_nonzero(demo.sum(axis=1) > cfg.bc.row_tokens) for demo in lengths]
    if any(too_long):
        raise ConfigError(
            f"{sum(too_long)} of {len(turn_lengths)} turns, in {np.count_nonzero(too_long)} of "
            f"{len(lengths)} demonstrations, do not fit bc.row_tokens={cfg.bc.row_tokens}: "
            f"set bc.row_tokens={turn_lengths.sum(axis=1).max()} to fit all.\n"
            f"Rollouts with such prompts also need engine.max_model_len={engine_tokens}, and "
            "bc.row_tokens and grpo.row_tokens of at least that."
        )
    # In rollouts, the engine needs space for max_new_tokens after the prompt.
    num_over = sum(
        demo[:, 0].max(initial=0) + max_new_tokens > cfg.engine.max_model_len for demo in lengths
    )
    if num_over:
        progress.log(
            f"{num_over} of {len(lengths)} demonstrations have prompts too long for rollouts: "
            f"set engine.max_model_len={engine_tokens} to fit all"
        )
    num_over = sum(demo[:, 1].max(initial=0) > max_new_tokens for demo in lengths)
    if num_over:
        progress.log(
            f"{num_over} of {len(lengths)} demonstrations have responses too long for rollouts: "
            f"set rollout.max_new_tokens={response} to fit all"
        )


def make_forest(
    cfg: RunConfig,
    packing_options: Mapping[str, int],
    tokenizer: ChatTokenizer,
    batch: Sequence[Demonstration],
    rng: np.random.Generator,
) -> learn.Forest:
    """Return the forest of the demonstrations of a batch that this process trains on.

    It is empty if the batch has fewer demonstrations than there are processes.

    Loss weights are shares of the complete batch, so the losses of the processes add up.

    Args:
        cfg: config of the run.
        packing_options: `Learner.packing_options`.
        tokenizer: encodes prompts and responses.
        batch: demonstrations of all processes.
        rng: generator that all processes share; draws the turns (`bc.turns_per_demo`).
    """
    prompt = prompt_format(cfg)
    # Drawn for the complete batch, so that all processes agree on the number of turns.
    turns = [_draw_turns(demo.trained_turns(), cfg.bc.turns_per_demo, rng) for demo in batch]
    local = slice(distributed.process_index(), None, distributed.process_count())
    episodes = [
        # A prompt contains all earlier responses, so the whole demonstration is converted.
        _with_turns(demos.to_episode(demo, tokenizer, prompt), indices)
        for demo, indices in zip(batch[local], turns[local], strict=True)
    ]
    row_tokens = cfg.bc.row_tokens
    if not episodes:
        row_multiple = packing_options["row_multiple"]
        return stack_rows([], row_tokens=row_tokens, row_multiple=row_multiple, num_path_tokens=0)
    # BC reads no advantages.
    advantages = [np.zeros(len(episode.turns), np.float32) for episode in episodes]
    branches = learn.branches_from_episodes(episodes, advantages, _token_weights(cfg, turns))
    return learn.pack_branches(branches, row_tokens=row_tokens, **packing_options)


def _draw_turns(turns: list[int], limit: int, rng: np.random.Generator) -> list[int]:
    """Return the first turn and `limit` - 1 others, in order; all if `limit` is 0."""
    if limit == 0 or len(turns) <= limit:
        return turns
    others = 1 + rng.permutation(len(turns) - 1)[: limit - 1]
    return [turns[0], *(turns[i] for i in np.sort(others))]


def _with_turns(episode: Episode, indices: Sequence[int]) -> Episode:
    return replace(episode, turns=tuple(episode.turns[i] for i in indices))


def _token_weights(cfg: RunConfig, turns: Sequence[Sequence[int]]) -> TokenWeightFn:
    """Return the loss weight function for a part of a batch with these turns."""
    if cfg.bc.loss_aggregation == "turn_token_mean":
        return partial(learn.turn_mean_weights, turns=sum(map(len, turns)))
    return partial(learn.episode_turn_token_weights, episodes=len(turns))


def _tokenizer(cfg: RunConfig) -> ChatTokenizer:
    return ChatTokenizer(policy.tokenizer_dir(cfg.policy.path))
