"""Training loop of multi-turn GRPO on live pages (WebAgent-R1, section 3.3)."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import jax
import numpy as np

from webagent_jax import distributed, learn
from webagent_jax.config import ConfigError, GRPOConfig, RunConfig, SuiteConfig
from webagent_jax.policy import prompt_record
from webagent_jax.policy.loading import require_local_policy
from webagent_jax.rollout import GroupScheduler
from webagent_jax.rollout.runtime import RolloutRuntime, long_prompt_note
from webagent_jax.suites import webarena
from webagent_jax.suites.webarena import replicas
from webagent_jax.tracking.episode_log import EpisodeJournal
from webagent_jax.tracking.progress import NullProgress, Progress
from webagent_jax.train import metrics
from webagent_jax.train.batches import Batch, collect_batch, group_jobs, split_minibatches
from webagent_jax.train.learner import Learner
from webagent_jax.train.metrics import Guards
from webagent_jax.train.resume import (
    TaskStreamState,
    episode_file,
    episode_files,
    init_shared_workdir,
    open_process_writer,
)
from webagent_jax.train.success_replay import SuccessReplay
from webagent_jax.train.task_sampling import TaskSampler
from webagent_jax.train.validation import BestPolicy, Validation
from webagent_jax.types import Episode


def train_grpo(cfg: RunConfig, workdir: Path, progress: Progress | None = None) -> Path:
    """Train with M-GRPO; with `grpo.max_staleness` above 0, rollouts run during updates.

    Writes checkpoints/, metrics.jsonl, tensorboard/, episodes/ and policy/. A killed run resumes
    when called again: completed episodes are reused, and only unfinished ones run again. With a
    constant learning rate schedule, the call may change `grpo.updates`, to continue a completed run
    or to end an interrupted one earlier. The exported policy is the last one, or with validation
    (`grpo.eval_interval`) the one with the highest success rate on a sample of training tasks.

    Returns:
        The Hugging Face directory of the trained policy, `workdir/policy`.

    Raises:
        ConfigError: the workdir contains a run with another config or from other weights; the first
            prompts of all episodes of the first update are too long; the new `grpo.updates` is
            below the number of completed updates, or has a longer warmup than these; or processes
            share a site that they change.
        NonFiniteStepError: loss or gradient is not finite; the last checkpoint is valid.
        GuardLimitError: too many updates in a row exceeded a limit of `guard`; the last checkpoint
            is from before them.
        PreemptedError: SIGTERM arrived; the last update has a checkpoint unless a guard forbids it.
    """
    progress = progress or NullProgress()
    _check_config(cfg)
    cfg = prompt_record.with_template(cfg)
    init_shared_workdir(workdir, cfg, "train grpo")
    total = cfg.grpo.updates
    process_options = _process_options(cfg.grpo)
    with ExitStack() as stack:
        learner = stack.enter_context(Learner(cfg, workdir))
        steps = cfg.grpo.minibatches * cfg.grpo.epochs
        loop_state = learner.restore_or_init(
            learn.GRPOLoss.from_config(
                learner.model, cfg.grpo, cfg.rollout.temperature, learner.mesh
            ),
            cfg.grpo.optimizer,
            # The learning rate schedule counts optimizer steps, not updates.
            total * steps,
            reference=cfg.grpo.needs_reference,
        )
        stream = TaskStreamState.from_checkpoint(loop_state)
        runtime = stack.enter_context(
            RolloutRuntime(cfg, progress, learner.model, learner.snapshot())
        )
        task_sampler = TaskSampler(cfg, runtime.suite, loop_state.get("tasks", {}))
        replay = SuccessReplay(cfg, workdir / "episodes", loop_state.get("successes", {}))
        # After the task sampler: a run with options that it rejects has no records.
        writer = stack.enter_context(open_process_writer(workdir, cfg, stream.update))
        timer = metrics.UpdateTimer(runtime)
        # Entered last, so closed first: running episodes need browsers and engine until they end.
        scheduler = stack.enter_context(
            _make_scheduler(cfg, workdir, runtime, task_sampler, stream=stream, timer=timer)
        )
        validation = (
            Validation(cfg, runtime, cfg.grpo.eval_episodes) if cfg.grpo.eval_interval else None
        )
        best = BestPolicy(workdir / "best", loop_state.get("best"))
        # A run that is beyond a limit from the first to the last update stops, however short it is.
        guards = Guards(replace(cfg.guard, patience=min(cfg.guard.patience, total)))
        progress.log(learner.describe())
        progress.start_phase("M-GRPO", total, "updates", done=stream.update)
        for update in range(stream.update, total):
            # 1. Collect. With max_staleness above 0, sampling continues during the steps below.
            batch = collect_batch(process_options, scheduler, update, replay)
            timer.mark_batch_ready()
            process_metrics = metrics.batch_metrics(batch) | task_sampler.record(batch.all_episodes)
            process_metrics |= metrics.staleness_metrics(batch, int(learner.state.step), steps)
            # 2. Train. A sleeping engine receives the new params before it wakes up.
            with _profile_update(cfg, workdir, update + 1), _engine_mode(cfg, runtime):
                step_metrics = _train_on_batch(cfg, runtime, learner, batch)
                runtime.update_policy(learner.snapshot())
            process_metrics |= timer.finish_update() | metrics.memory_metrics()
            is_last = update + 1 == total
            # 3. Validate. With max_staleness above 0, rollouts continue at the same time.
            if validation and (is_last or (update + 1) % cfg.grpo.eval_interval == 0):
                step_metrics |= validation.measure()
                best.add(update + 1, step_metrics, learner.state.params, progress)
                for name, count in timer.finish_validation().items():
                    process_metrics[name] += count
            # 4. Merge the metrics of rollouts; those of steps and validation cover all processes.
            record = (
                metrics.merge_process_metrics(distributed.allgather(process_metrics)) | step_metrics
            )
            writer.write(update + 1, record)
            _check_first_prompts(cfg, batch, update + 1, record, progress)
            # All processes check the same values, so a guard stops all of them at the same update.
            for warning in guards.check(update + 1, record):
                progress.log(warning)
            # Outside the limits, only the last update is saved, so a resumed run starts from older
            # params.
            if is_last or (
                learner.needs_checkpoint(update + 1, cfg.grpo.checkpoint_interval)
                and guards.all_within_limits
            ):
                learner.save(
                    update + 1,
                    TaskStreamState.to_checkpoint(update + 1, scheduler)
                    | {"tasks": task_sampler.state(), "successes": replay.state()}
                    | {"best": best.record_for_checkpoint()},
                )
            learner.stop_if_preempted(update + 1)
            progress.advance()
        return _export(workdir, learner, best, progress)


def check_sampling(cfg: RunConfig) -> None:
    """Check that tokens can be scored under the distribution that they are sampled from.

    Raises:
        ConfigError: `rollout.top_p` or `rollout.top_k` filters that distribution. A token that the
            updated params filter out has probability 0, so its ratio carries no gradient.
    """
    if cfg.rollout.top_p < 1 or cfg.rollout.top_k > 0:
        raise ConfigError(
            f"M-GRPO needs unfiltered samples, not rollout.top_p={cfg.rollout.top_p} and "
            f"rollout.top_k={cfg.rollout.top_k}: set rollout.top_p=1 and rollout.top_k=0 "
            "(eval.top_p and eval.top_k filter in evaluation alone)"
        )


def _check_config(cfg: RunConfig) -> None:
    """Check what M-GRPO needs before the run loads anything large.

    Raises:
        ConfigError: there is no local policy, sampling is filtered, or processes share a site.
    """
    require_local_policy(cfg)
    check_sampling(cfg)
    _check_replicas(cfg.suite)


def _check_replicas(suite: SuiteConfig) -> None:
    """Check that each process has its own replicas of the sites that tasks change.

    Raises:
        ConfigError: two processes share one, or a site has no address.
    """
    if distributed.process_count() > 1 and suite.name == "webarena_lite" and not suite.factory:
        tasks, addresses = webarena.read(suite.webarena, suite.tasks, os.environ)
        resources = replicas.exclusive_resources(suite.webarena, tasks, addresses)
        replicas.check_disjoint(distributed.allgather(resources))


def _process_options(grpo: GRPOConfig) -> GRPOConfig:
    """Return the options with the tasks per update and the extra groups of one process.

    Raises:
        ConfigError: the tasks of an update do not divide evenly over the processes, or are fewer
            per process than the minibatches.
    """
    processes = distributed.process_count()
    tasks, remainder = divmod(grpo.tasks_per_update, processes)
    if remainder:
        raise ConfigError(
            f"grpo.tasks_per_update={grpo.tasks_per_update} does not divide evenly over "
            f"{processes} processes: set it to a multiple of the number of processes"
        )
    if tasks < grpo.minibatches:
        raise ConfigError(
            f"grpo.minibatches={grpo.minibatches} is more than the {tasks} tasks of each of "
            f"{processes} processes: raise grpo.tasks_per_update or lower grpo.minibatches"
        )
    # Rounded up, so that every process can replace a group.
    extra_groups = math.ceil(grpo.max_extra_groups / processes)
    return replace(grpo, tasks_per_update=tasks, max_extra_groups=extra_groups)


def _make_scheduler(
    cfg: RunConfig,
    workdir: Path,
    runtime: RolloutRuntime,
    task_sampler: TaskSampler,
    *,
    stream: TaskStreamState,
    timer: metrics.UpdateTimer,
) -> GroupScheduler:
    """Return the scheduler of the groups from `stream` on, which writes episodes/."""
    journal = EpisodeJournal(workdir / "episodes", key=lambda e: (e.group, e.attempt))

    def record_episode(episode: Episode) -> None:
        # On a worker thread, before the scheduler receives the episode, so the journal contains
        # every episode of a batch.
        journal.add(episode, episode_file(episode.update, distributed.process_index()))
        timer.add(episode)

    return GroupScheduler(
        runtime.collector(),
        partial(group_jobs, cfg, runtime, task_sampler),
        first=stream.next_index,
        stride=distributed.process_count(),
        resume=stream.pending,
        backlog=stream.backlog,
        # Pending groups are at most max_staleness updates old, so older files are not needed.
        finished=journal.load(
            episode_files(workdir / "episodes", stream.update - cfg.grpo.max_staleness),
            # Asynchronous updates are not repeated exactly anyway: their batches depend on timing,
            # and earlier groups may be incomplete. The loss corrects for the policies of episodes.
            for_replay=cfg.grpo.max_staleness == 0,
        ),
        max_staleness=cfg.grpo.max_staleness,
        timeout=cfg.rollout.group_timeout,
        on_episode=record_episode,
    )


def _train_on_batch(
    cfg: RunConfig, runtime: RolloutRuntime, learner: Learner, batch: Batch
) -> dict[str, float]:
    """Run the optimizer steps of one batch, one per minibatch and epoch; return mean metrics.

    A minibatch without trainable episodes on any process is skipped.
    """
    grpo, layout = cfg.grpo, learn.make_layout(cfg.grpo, runtime.tokenizer.decode)
    minibatches = split_minibatches(batch.groups, _process_options(grpo))
    # 1. Exchange the counts of all minibatches, which normalize the loss weights.
    process_totals = distributed.allgather(
        [learn.count_totals(minibatch.groups, grpo, layout) for minibatch in minibatches]
    )
    # 2. Pack all before the first step: the proximal policy is the policy before the update.
    forests: list[learn.Forest] = []
    all_totals = learn.minibatch_totals(process_totals)
    for minibatch, totals in zip(minibatches, all_totals, strict=True):
        # The totals are equal on all processes: all skip the minibatch and its collective calls.
        if totals.episodes == 0:
            continue
        forest = learn.pack_groups(
            minibatch.groups,
            grpo,
            cfg.rollout,
            **learner.packing_options,
            # `totals` counts the groups of all processes, so the full size does too.
            full_size=minibatch.full_size * distributed.process_count(),
            totals=totals,
            layout=layout,
        )
        # All processes run one program, so their rows need one shape.
        rows = learner.pad_across_processes(forest.rows)
        # Otherwise all tokens are on policy, and the behavior policy is the proximal one.
        if cfg.is_off_policy:
            rows = learner.compute_prox_logp(rows)
        forests.append(replace(forest, rows=rows))
    # All steps are dispatched before the first metrics are read, so the device never waits.
    pending = [(learner.step(forest.rows), forest) for forest in forests * grpo.epochs]
    stats = [
        step.fetch() | metrics.packing_metrics(forest, learner.model.attention)
        for step, forest in pending
    ]
    if not stats:
        return {}
    means = {name: float(np.mean([step[name] for step in stats])) for name in stats[0]}
    # Measured before the first step changes the params.
    return means | {"sampling_logp_difference": stats[0]["logp_difference"]}


def _engine_mode(cfg: RunConfig, runtime: RolloutRuntime) -> AbstractContextManager[None]:
    """Return a context in which the engine sleeps, or keeps sampling with `max_staleness`."""
    return runtime.engine_asleep() if cfg.grpo.max_staleness == 0 else nullcontext()


def _check_first_prompts(
    cfg: RunConfig,
    batch: Batch,
    update: int,
    record: Mapping[str, float],
    progress: Progress,
) -> None:
    """Log the number of episodes whose first prompt was too long.

    Raises:
        ConfigError: it was in all episodes of the first update. All processes have the same
            `record`, so all of them raise.
    """
    if note := long_prompt_note(cfg, batch.all_episodes):
        progress.log(f"update {update}: {note}")
    if update == 1 and record.get("episode/num_turns") == 0:
        raise ConfigError(
            "the first prompt was too long in all episodes of the first update: increase "
            f"engine.max_model_len={cfg.engine.max_model_len}, and choose another --workdir"
        )


def _export(workdir: Path, learner: Learner, best: BestPolicy, progress: Progress) -> Path:
    """Export the last or best policy; log a note if no update had an optimizer step."""
    if int(learner.state.step) == 0:
        progress.log(
            "no group had a gradient in any update, so policy/ equals the initial policy: use "
            "easier tasks, train bc first, or raise grpo.group_size or rollout.temperature"
        )
    return learner.export(workdir / "policy", best.restore(learner.state.params, progress))


@contextmanager
def _profile_update(cfg: RunConfig, workdir: Path, update: int) -> Iterator[None]:
    """Write a device profile to `workdir/profile` in update `log.profile_update`."""
    if update != cfg.log.profile_update:
        yield
        return
    with jax.profiler.trace(str(workdir / "profile")):
        yield
