"""The two trainings: behaviour cloning and M-GRPO. Each resumes by itself from its workdir."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np
from jax.sharding import Mesh

from webagent_jax import demos, learn, policy, seeds
from webagent_jax.agent import TEMPLATES, ChatTokenizer
from webagent_jax.checkpoint import Checkpointer
from webagent_jax.collect import collect_demos
from webagent_jax.config import RunConfig
from webagent_jax.generate import EngineStats
from webagent_jax.learn import TrainState
from webagent_jax.policy import ModelConfig, lora, sharding
from webagent_jax.policy.lora import Base
from webagent_jax.report import metrics as metrics_log
from webagent_jax.report import provenance, store
from webagent_jax.report.progress import NullProgress, Progress
from webagent_jax.rollout import Job
from webagent_jax.seeds import Stream
from webagent_jax.stage import Stage, load_policy
from webagent_jax.types import Episode, Group, Outcome, Task

_MICROBATCHES = 16  # rows come in multiples: empty ones cost nothing, a new shape a compilation


# --- behaviour cloning ---------------------------------------------------------------------------


def bc(cfg: RunConfig, workdir: Path, progress: Progress | None = None) -> Path:
    """Behaviour cloning on expert demonstrations.

    Collects the demonstrations first, unless `workdir/demos` holds them. Writes demos/,
    checkpoints/, metrics.jsonl, tensorboard/ and policy/.

    Returns:
        The Hugging Face directory of the trained policy, `workdir/policy`.

    Raises:
        ConfigError: the workdir holds a run with another config.
        NonFiniteUpdate: loss or gradient is not finite; the last checkpoint is good.
    """
    progress = progress or NullProgress()
    provenance.open_workdir(workdir, cfg)
    if not demos.exists(workdir / "demos"):
        collect_demos(cfg, workdir / "demos", progress)
    mesh = open_mesh(cfg)
    model, params = load_policy(cfg, mesh)
    base, trained = _trained(cfg, params, mesh)
    tokenizer = ChatTokenizer(policy.directory(cfg.policy.path))
    episodes = [
        demos.to_episode(demo, tokenizer, TEMPLATES[cfg.prompt.template], cfg.prompt.thinking)
        for demo in demos.read(workdir / "demos")
    ]
    per_epoch = math.ceil(len(episodes) / cfg.bc.batch_episodes)
    total = cfg.bc.epochs * per_epoch
    optimizer = learn.make_optimizer(cfg.bc.optimizer, total)
    state = learn.init_state(trained, optimizer)
    microbatch = _microbatch(cfg, mesh)
    with (
        Checkpointer(workdir / "checkpoints") as checkpoints,
        closing(metrics_log.open_writer(workdir)) as writer,
    ):
        state, _ = checkpoints.restore(state) or (state, {})
        done = int(state.step)
        writer.truncate_after(done)
        progress.log(_on_device(model, mesh))
        progress.phase("behaviour cloning", total, "updates", done=done)
        for update in range(done, total):
            epoch, index = divmod(update, per_epoch)
            order = seeds.generator(cfg.seed, Stream.BC_ORDER, epoch).permutation(len(episodes))
            batch = [episodes[i] for i in order[index::per_epoch]]
            forest = learn.build(
                learn.branches(batch, [0.0] * len(batch)),
                row_tokens=cfg.bc.row_tokens,
                row_multiple=_MICROBATCHES * microbatch,
            )
            state, stats = learn.bc_update(
                model, optimizer, state, forest.rows, base=base, microbatch=microbatch, mesh=mesh
            )
            writer.write(update + 1, stats | _row_metrics(forest, model))
            progress.advance(tokens=int(np.count_nonzero(forest.rows.weights)))
            if (update + 1) % cfg.bc.checkpoint_updates == 0 or update + 1 == total:
                checkpoints.save(update + 1, state, {})
    return export_policy(cfg, workdir / "policy", model, lora.whole(base, state.params))


# --- M-GRPO --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Batch:
    """What one update learns from, and what was seen on the way."""

    groups: Sequence[Group]  # those with a policy gradient, or all when none are dropped
    played: Sequence[Episode]  # all episodes, of dropped groups too
    flat: int  # groups that were dropped
    drawn: int  # tasks drawn since the run began


def grpo(cfg: RunConfig, workdir: Path, progress: Progress | None = None) -> Path:
    """Multi-turn GRPO on live pages, on-policy (WebAgent-R1, section 3.3).

    Writes checkpoints/, metrics.jsonl, tensorboard/, episodes/ and policy/.

    Returns:
        The Hugging Face directory of the trained policy, `workdir/policy`.

    Raises:
        ConfigError: the workdir holds a run with another config.
        NonFiniteUpdate: loss or gradient is not finite; the last checkpoint is good.
    """
    progress = progress or NullProgress()
    provenance.open_workdir(workdir, cfg)
    mesh = open_mesh(cfg)
    model, params = load_policy(cfg, mesh)
    base, trained = _trained(cfg, params, mesh)
    reference = params if cfg.grpo.kl_beta > 0 else None
    total = cfg.grpo.updates
    steps = cfg.grpo.minibatches * cfg.grpo.epochs
    optimizer = learn.make_optimizer(cfg.grpo.optimizer, total * steps)
    state = learn.init_state(trained, optimizer)
    with (
        Checkpointer(workdir / "checkpoints") as checkpoints,
        closing(metrics_log.open_writer(workdir)) as writer,
    ):
        state, position = checkpoints.restore(state) or (state, {"update": 0, "drawn": 0})
        done, drawn = position["update"], position["drawn"]
        writer.truncate_after(done)
        with Stage(cfg, progress, model, learn.snapshot(state, base)) as stage:
            progress.log(_on_device(model, mesh))
            progress.phase("M-GRPO", total, "updates", done=done)
            for update in range(done, total):
                begun, before = time.monotonic(), stage.engine.stats()
                batch = _play_batch(cfg, stage, drawn)
                played = time.monotonic()
                sampling = _engine_metrics(stage.engine.stats().since(before))
                drawn = batch.drawn
                with stage.at_rest():
                    state, stats = _learn_batch(
                        cfg,
                        model,
                        optimizer,
                        state,
                        batch,
                        base=base,
                        reference=reference,
                        mesh=mesh,
                    )
                    stage.update_policy(learn.snapshot(state, base))
                seconds = {
                    "seconds/rollout": played - begun,
                    "seconds/update": time.monotonic() - played,
                }
                writer.write(update + 1, stats | _batch_metrics(batch) | sampling | seconds)
                _log_episodes(workdir, update + 1, batch)
                if (update + 1) % cfg.grpo.checkpoint_updates == 0 or update + 1 == total:
                    checkpoints.save(update + 1, state, {"update": update + 1, "drawn": drawn})
                progress.advance()
    return export_policy(cfg, workdir / "policy", model, lora.whole(base, state.params))


def _play_batch(cfg: RunConfig, stage: Stage, drawn: int) -> _Batch:
    """Groups for one update; those without variance are replaced up to the budget."""
    wanted, size = cfg.grpo.tasks_per_update, cfg.grpo.group_size
    budget = wanted + (cfg.grpo.max_refills if cfg.grpo.drop_flat_groups else 0)
    rules = stage.rules(cfg.rollout.max_turns)
    groups: list[Group] = []
    played: list[Episode] = []
    flat = 0
    while len(groups) < wanted and budget > 0:
        count = min(wanted - len(groups), budget)
        numbers = range(drawn, drawn + count)
        drawn, budget = drawn + count, budget - count
        tasks = [draw_task(cfg, stage, number) for number in numbers]
        episodes = stage.play(
            Job(
                task,
                seeds.derive(cfg.seed, Stream.SAMPLING, number, sibling),
                rules,
                lambda: stage.policy_agent(cfg.rollout.temperature),
            )
            for number, task in zip(numbers, tasks, strict=True)
            for sibling in range(size)
        )
        played += episodes
        for position, task in enumerate(tasks):
            group = Group(task, tuple(episodes[position * size : (position + 1) * size]))
            if cfg.grpo.drop_flat_groups and _is_flat(group):
                flat += 1
            else:
                groups.append(group)
    return _Batch(groups, played, flat, drawn)


def draw_task(cfg: RunConfig, stage: Stage, number: int) -> Task:
    """The number-th task of the run: all names in turn, in an order of their own each time."""
    names = stage.suite.names("train")
    time_around, place = divmod(number, len(names))
    order = seeds.generator(cfg.seed, Stream.TASKS, time_around)
    name = names[order.permutation(len(names))[place]]
    index = seeds.generator(cfg.seed, Stream.TASKS, time_around, place)
    return stage.suite.task(name, "train", int(index.integers(cfg.suite.train_seeds)))


def _is_flat(group: Group) -> bool:
    rewards = [e.reward for e in group.episodes if e.reward is not None]
    return len(rewards) < 2 or learn.is_flat(np.asarray(rewards, np.float32))


def _learn_batch(
    cfg: RunConfig,
    model: ModelConfig,
    optimizer: learn.Optimizer,
    state: TrainState,
    batch: _Batch,
    *,
    base: Base | None,
    reference: policy.Params | None,
    mesh: Mesh,
) -> tuple[TrainState, dict[str, float]]:
    """The updates of one batch: one for each minibatch and epoch. No groups, no update."""
    microbatch = _microbatch(cfg, mesh)
    stats: list[dict[str, float]] = []
    forests = []
    whole = cfg.grpo.tasks_per_update / cfg.grpo.minibatches
    for groups in _minibatches(batch.groups, cfg.grpo.minibatches):
        episodes, advantages = learn.credited(groups, std_eps=cfg.grpo.std_eps, whole=whole)
        forests.append(
            learn.build(
                learn.branches(episodes, advantages),
                row_tokens=cfg.grpo.row_tokens,
                row_multiple=_MICROBATCHES * microbatch,
            )
        )
    for forest in forests * cfg.grpo.epochs:
        state, part = learn.grpo_update(
            model,
            optimizer,
            state,
            forest.rows,
            grpo=cfg.grpo,
            base=base,
            ref_params=reference,
            microbatch=microbatch,
            mesh=mesh,
        )
        stats.append(part | _row_metrics(forest, model))
    return state, {
        name: float(np.mean([s[name] for s in stats])) for name in stats[0]
    } if stats else {}


def _minibatches(groups: Sequence[Group], count: int) -> Iterator[Sequence[Group]]:
    for part in range(count):
        if groups[part::count]:
            yield groups[part::count]


# --- what both need ------------------------------------------------------------------------------


def open_mesh(cfg: RunConfig) -> Mesh:
    """Over all devices. Raises ShardingError, a ValueError."""
    return sharding.make_mesh(cfg.mesh.data, cfg.mesh.fsdp, cfg.mesh.tensor)


def _trained(
    cfg: RunConfig, params: policy.Params, mesh: Mesh
) -> tuple[Base | None, policy.Params]:
    """What stays and what is trained: all params, or adapters on them."""
    if cfg.lora.rank == 0:
        return None, params
    key = jax.random.key(seeds.derive(cfg.seed, Stream.ADAPTERS))
    adapters = lora.init(params, key, rank=cfg.lora.rank, projections=cfg.lora.projections)
    adapters = jax.device_put(adapters, sharding.param_shardings(adapters, mesh))
    return Base(params, cfg.lora.alpha / cfg.lora.rank), adapters


def _microbatch(cfg: RunConfig, mesh: Mesh) -> int:
    """Rows whose activations exist at once, on all devices together."""
    return cfg.mesh.rows_per_device * sharding.rows_apart(mesh)


def _on_device(model: ModelConfig, mesh: Mesh) -> str:
    sizes = " x ".join(f"{axis}={size}" for axis, size in mesh.shape.items())
    return f"attention: {model.attention}; mesh: {sizes}"


def _row_metrics(forest: learn.Forest, model: ModelConfig) -> dict[str, float]:
    return {
        f"attention/{model.attention}": 1.0,  # which of them ran
        "forest/shared_fraction": forest.shared_fraction,
        "forest/padding": forest.padding_fraction,
    }


def _batch_metrics(batch: _Batch) -> dict[str, float]:
    scored = [e for e in batch.played if e.reward is not None]
    turns = [turn for e in scored for turn in e.turns]
    kept = len(batch.groups)
    values = {
        "infra": float(len(batch.played) - len(scored)),
        "episodes": float(len(batch.played)),
        "groups_with_signal": kept / max(kept + batch.flat, 1),
    }
    if not scored:
        return values
    tokens = [len(turn.completion.token_ids) for turn in turns]
    by_site: dict[str, list[float]] = {}
    for episode in scored:
        by_site.setdefault(",".join(episode.task.sites), []).append(episode.reward or 0.0)
    return values | {
        "reward": float(np.mean([e.reward for e in scored])),
        "trajectory_tokens": sum(tokens) / len(scored),
        "interactions": len(turns) / len(scored),
        "response_tokens": float(np.mean(tokens)) if tokens else 0.0,
        "truncated": float(np.mean([e.outcome is Outcome.TRUNCATED for e in scored])),
        **{f"success/{site}": float(np.mean(rewards)) for site, rewards in by_site.items()},
    }


def _engine_metrics(stats: EngineStats) -> dict[str, float]:
    """How the engine worked."""
    return {
        "engine/prompt_tokens": float(stats.prompt_tokens),
        # The rest was in the cache.
        "engine/prefill_computed": stats.prefilled_tokens / max(stats.prompt_tokens, 1),
        "engine/sampled_tokens": float(stats.sampled_tokens),
        "engine/occupancy": stats.occupancy,
        "engine/compiled": float(stats.compiled),
    }


def _log_episodes(workdir: Path, update: int, batch: _Batch) -> None:
    """Keeps one file of episodes per update; a resumed update writes its file anew."""
    path = workdir / "episodes" / f"update-{update:05d}.jsonl"
    path.unlink(missing_ok=True)
    store.append_episodes(path, batch.played)


def export_policy(
    cfg: RunConfig, directory: Path, model: ModelConfig, params: policy.Params
) -> Path:
    """A Hugging Face directory that stands alone: weights, config and tokenizer."""
    policy.save_hf(directory, model, lora.merge(params))
    policy.copy_tokenizer(policy.directory(cfg.policy.path), directory)
    return directory
