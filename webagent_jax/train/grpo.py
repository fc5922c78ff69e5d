"""Multi-turn GRPO on live pages (WebAgent-R1, section 3.3)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import jax
import numpy as np

from webagent_jax import distributed, learn
from webagent_jax.config import ConfigError, GRPOConfig, RunConfig
from webagent_jax.policy.loading import require_local_policy
from webagent_jax.rollout import Groups
from webagent_jax.rollout.runtime import Stage
from webagent_jax.tracking.progress import NullProgress, Progress
from webagent_jax.train import metrics
from webagent_jax.train.batches import Batch, next_batch, siblings, split_minibatches
from webagent_jax.train.learner import Learner
from webagent_jax.train.metrics import Guards
from webagent_jax.train.resume import Journal, Position, open_folder, open_writer
from webagent_jax.types import Episode


def train_grpo(cfg: RunConfig, workdir: Path, progress: Progress | None = None) -> Path:
    """Multi-turn GRPO; with `grpo.staleness` above 0 episodes go on while the policy is updated.

    Writes checkpoints/, metrics.jsonl, tensorboard/, episodes/ and policy/. Killed at any moment it
    goes on where it stopped, and plays again only what was running.

    Returns:
        The Hugging Face directory of the trained policy, `workdir/policy`.

    Raises:
        ConfigError: the workdir holds a run with another config, or one begun with other weights.
        NonFiniteUpdate: loss or gradient is not finite; the last checkpoint is good.
        GuardTripped: a limit of `guard` was crossed too often; the last checkpoint is good.
    """
    progress = progress or NullProgress()
    require_local_policy(cfg)
    check_sampling(cfg)
    open_folder(workdir, cfg)
    total = cfg.grpo.updates
    share = _share(cfg.grpo)
    with ExitStack() as opened:
        learner = opened.enter_context(Learner(cfg, workdir))
        steps = cfg.grpo.minibatches * cfg.grpo.epochs
        saved = learner.begin(cfg.grpo.optimizer, total * steps, reference=cfg.grpo.kl_beta > 0)
        position = Position.of(saved)
        writer = opened.enter_context(closing(open_writer(workdir, cfg)))
        writer.truncate_after(position.update)
        stage = opened.enter_context(Stage(cfg, progress, learner.model, learner.snapshot()))
        journal = Journal(workdir / "episodes", distributed.process_index())
        clock = metrics.Clock(stage)

        def ended(episode: Episode) -> None:
            journal.add(episode)
            clock.add(episode)

        groups = Groups(
            stage.collector(),
            partial(siblings, cfg, stage),
            first=position.drawn,
            stride=distributed.process_count(),
            again=position.open,
            backlog=position.backlog,
            known=journal.load(since=position.update - cfg.grpo.staleness),
            staleness=cfg.grpo.staleness,
            timeout=cfg.rollout.group_timeout,
            on_episode=ended,
        )
        opened.enter_context(groups)
        guards = Guards(cfg.guard)
        progress.log(learner.about())
        progress.phase("M-GRPO", total, "updates", done=position.update)
        for update in range(position.update, total):
            batch = next_batch(share, groups, update)
            clock.batch_is_there()
            seen = metrics.of_batch(batch)
            seen |= metrics.of_staleness(batch, int(learner.state.step), steps)
            with _profiled(cfg, workdir, update + 1), _meanwhile(cfg, stage):
                learned = _learn(cfg, stage, learner, batch)
                stage.update_policy(learner.snapshot())
            seen |= clock.lap() | metrics.of_memory()
            record = metrics.merged(distributed.allgather(seen)) | learned
            writer.write(update + 1, record)
            for warning in guards.check(update + 1, record):
                progress.log(warning)
            last = update + 1 == total
            if last or ((update + 1) % cfg.grpo.checkpoint_updates == 0 and guards.quiet):
                learner.save(update + 1, Position.saved(update + 1, groups))
            progress.advance()
        return learner.export(workdir / "policy")


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


def _share(grpo: GRPOConfig) -> GRPOConfig:
    """Return the options of one process.

    Raises:
        ConfigError: the tasks of an update do not divide evenly over the processes.
    """
    processes = distributed.process_count()
    tasks, rest = divmod(grpo.tasks_per_update, processes)
    if rest:
        raise ConfigError(
            f"grpo.tasks_per_update={grpo.tasks_per_update} does not divide over {processes} "
            "processes: choose a multiple of their number"
        )
    if tasks < grpo.minibatches:
        raise ConfigError(
            f"grpo.minibatches={grpo.minibatches} is more than the {tasks} tasks of each of "
            f"{processes} processes: raise grpo.tasks_per_update or lower grpo.minibatches"
        )
    refills = math.ceil(grpo.max_refills / processes)
    return replace(grpo, tasks_per_update=tasks, max_refills=refills)


def _learn(cfg: RunConfig, stage: Stage, learner: Learner, batch: Batch) -> dict[str, float]:
    """The updates of one batch: one for each minibatch and epoch.

    A minibatch that has nothing to learn from, on any host, is left out.
    """
    grpo, decode = cfg.grpo, stage.tokenizer.decode
    parts = split_minibatches(batch.groups, _share(grpo))
    tallies = distributed.allgather([learn.tally(part.groups, grpo, decode) for part in parts])
    forests: list[learn.Forest] = []
    for at, part in enumerate(parts):
        totals = learn.Totals(*np.sum([host[at] for host in tallies], axis=0))
        if totals.episodes == 0:
            continue
        forest = learn.rows_of(
            part.groups,
            grpo,
            cfg.rollout,
            row_multiple=learner.row_multiple,
            whole=part.full_size * distributed.process_count(),
            totals=totals,
            decode=decode,
        )
        rows = learner.even(forest.rows)
        forests.append(replace(forest, rows=learner.proximal(rows) if grpo.staleness else rows))
    stats = [
        learner.reinforce(forest.rows) | metrics.of_rows(forest, learner.model.attention)
        for forest in forests * grpo.epochs
    ]
    if not stats:
        return {}
    means = {name: float(np.mean([one[name] for one in stats])) for name in stats[0]}
    return means | {"sampler_gap": stats[0]["logp_gap"]}  # before the first step


def _meanwhile(cfg: RunConfig, stage: Stage) -> AbstractContextManager[None]:
    """What the collectors do during an update: they rest, or they play on."""
    return stage.at_rest() if cfg.grpo.staleness == 0 else nullcontext()


@contextmanager
def _profiled(cfg: RunConfig, workdir: Path, update: int) -> Iterator[None]:
    """Writes what the devices did to `workdir/profile`, for TensorBoard, where that was asked."""
    if update != cfg.log.profile_update:
        yield
        return
    with jax.profiler.trace(str(workdir / "profile")):
        yield
