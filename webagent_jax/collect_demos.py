"""Collection of demonstrations for behavior cloning, by experts or by a policy."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from webagent_jax import demos, seeds
from webagent_jax.config import ConfigError, RunConfig
from webagent_jax.endpoint import REJECTED_PROMPT
from webagent_jax.policy import weights
from webagent_jax.policy.loading import initial_policy
from webagent_jax.rollout import Job
from webagent_jax.rollout.runtime import RolloutRuntime
from webagent_jax.seeds import RandomStream
from webagent_jax.suites.registry import require_task_names
from webagent_jax.tracking.episode_log import EpisodeJournal
from webagent_jax.tracking.progress import Progress
from webagent_jax.types import DemoSource, Episode, InfraError, Outcome, Suite, Task

_MIN_EXPERT_TURNS = 30  # turn limit of experts if `rollout.max_turns` is lower


def collect_demos(
    cfg: RunConfig, directory: Path, progress: Progress, source: DemoSource = "expert"
) -> None:
    """Run episodes of training tasks in browsers and write the successful ones.

    Runs `bc.demos_per_task` seeds of each task name. Skips demonstrations whose prompts exceed
    `engine.max_model_len`; the log reports the limit that fits all. An interrupted collection with
    the same options and weights resumes: `demo_episodes/` beside the directory is its journal until
    the end. Failures of experts run again, because the user may have corrected them, and so do
    tasks whose instructions have changed.

    After infrastructure faults the collector retries the episode, and the collection runs it once
    more after all others. If an episode of a policy fails again, the collection is not complete:
    the next call runs only the episodes without a reward. Faults that the next call would repeat
    are skipped instead: those of experts, and prompts that an endpoint rejects.

    Args:
        cfg: config of the run.
        directory: folder of the demonstrations.
        progress: receives the phase and the log messages.
        source: scripted experts of the suite, or the policy of the config (local or endpoint),
            sampled as in rollouts.

    Raises:
        ConfigError: `suite.train_seeds_per_task` is below `bc.demos_per_task`, the suite has no
            training tasks, a task has no expert, or no demonstration fits
            `engine.max_model_len`.
        DemosError: no episode succeeded, or the directory contains demonstrations.
        InfraError: episodes of the policy have no reward; another call with the same options
            continues.
    """
    check_num_demos(cfg)
    # Experts need no policy.
    model, snapshot = initial_policy(cfg) if source == "policy" else (None, None)
    with RolloutRuntime(cfg, progress, model, snapshot) as runtime:
        max_turns = cfg.rollout.max_turns
        if source == "expert":
            max_turns = max(max_turns, _MIN_EXPERT_TURNS)
        episode_config = runtime.episode_config(max_turns)
        max_prompt_tokens = episode_config.max_prompt_tokens
        if source == "expert":
            # Experts read no prompts. Without a limit, the log can report the one that fits all.
            episode_config = replace(episode_config, max_prompt_tokens=sys.maxsize)
        agent = runtime.expert_agent if source == "expert" else runtime.policy_agent
        task_names = require_task_names(runtime.suite, "train")
        jobs = [
            Job(task, seed, episode_config, agent) for task, seed in demo_tasks(cfg, runtime.suite)
        ]
        journal = EpisodeJournal(directory.with_name("demo_episodes"), key=lambda e: e.task.id)
        journal_file = _journal_file(cfg, source)
        completed = journal.load([journal_file])
        if source == "expert":
            # A failure runs again: its expert or task may have been corrected since.
            completed = {k: e for k, e in completed.items() if demos.ends_with_success(e)}
        # The user may also have changed the instructions of the tasks.
        intents = {job.task.id: job.task.intent for job in jobs}
        completed = {k: e for k, e in completed.items() if e.task.intent == intents.get(k)}
        episodes = _run_jobs(
            jobs, runtime, completed, lambda e: journal.add(e, journal_file), progress
        )
        if source == "policy" and runtime.usage is not None:
            progress.log(str(runtime.usage))
    _check_infra(episodes, source)
    # Three filters: success, prompts that fit rollouts, turns that all have actions.
    successes = [episode for episode in episodes if demos.ends_with_success(episode)]
    in_limit = [episode for episode in successes if longest_prompt(episode) <= max_prompt_tokens]
    demonstrations = [episode for episode in in_limit if demos.has_only_actions(episode)]
    if not demonstrations:
        # The next collection runs again: a mistake in experts or site may be corrected by then.
        journal.delete()
    _log_failures(episodes, cfg, source, max_turns, progress)
    if len(in_limit) < len(successes):
        # `max_model_len` covers the prompt and a response of full length.
        required_len = max(map(longest_prompt, successes)) + cfg.rollout.max_new_tokens
        message = (
            f"{len(successes) - len(in_limit)} of {len(episodes)} demonstrations have prompts too "
            f"long for engine.max_model_len={cfg.engine.max_model_len}: skipped; "
            f"engine.max_model_len={required_len} fits all"
        )
        if not in_limit:
            raise ConfigError(message)
        progress.log(message)
    if len(demonstrations) < len(in_limit):
        num_skipped = len(in_limit) - len(demonstrations)
        progress.log(
            f"{num_skipped} demonstrations have no turns, or a response without a valid action: "
            "skipped"
        )
    _log_missing_names(task_names, episodes, demonstrations, progress)
    _log_excess_turns(demonstrations, cfg.rollout.max_turns, progress)
    demos.write(directory, map(demos.from_episode, demonstrations))
    journal.delete()


def _journal_file(cfg: RunConfig, source: DemoSource) -> str:
    """Return the file name of the episodes with these options and weights."""
    has_weights = source == "policy" and cfg.policy.kind == "weights"
    checksum = weights.checksum(cfg.policy.path) if has_weights else ""
    return f"{hashlib.sha256(repr((source, cfg, checksum)).encode()).hexdigest()[:16]}.jsonl"


def _check_infra(episodes: Sequence[Episode], source: DemoSource) -> None:
    """Check that another call would not complete episodes without a reward.

    Raises:
        InfraError: it may complete some of them.
    """
    # An expert fails on the same page again, and an endpoint rejects the same prompt again.
    faults = [
        episode
        for episode in episodes
        if episode.reward is None
        and source == "policy"
        and REJECTED_PROMPT not in episode.infra_error
    ]
    if faults:
        raise InfraError(
            f"{_count_infra(faults, episodes)}\n"
            "No demonstrations are written: run the same command again to continue with the "
            "episodes without a reward."
        )


def _count_infra(faults: Sequence[Episode], episodes: Sequence[Episode]) -> str:
    first = faults[0]
    return (
        f"{len(faults)} of {len(episodes)} episodes have no reward (INFRA); the first is "
        f"{first.task.id}: {first.infra_error}"
    )


def _log_failures(
    episodes: Sequence[Episode],
    cfg: RunConfig,
    source: DemoSource,
    max_turns: int,
    progress: Progress,
) -> None:
    """Log the numbers of episodes without success, and of those that reached a limit."""
    faults = [episode for episode in episodes if episode.reward is None]
    if faults:
        progress.log(f"{_count_infra(faults, episodes)}: skipped")
    num_successes = sum(e.outcome is Outcome.SUCCESS for e in episodes)
    num_failures = len(episodes) - len(faults) - num_successes
    if num_failures:
        progress.log(f"{num_failures} episodes without success: skipped")
    num_truncated = num_successes - sum(map(demos.ends_with_success, episodes))
    if num_truncated:
        progress.log(f"{num_truncated} successes ended at the turn or token limit: skipped")
    # Below the turn limit, only a prompt can truncate: rollouts have no max_repeats.
    num_too_long = sum(e.truncated and len(e.turns) < max_turns for e in episodes)
    if num_too_long:
        progress.log(
            f"{num_too_long} of {len(episodes)} episodes ended at a prompt that was too long: "
            f"increase engine.max_model_len={cfg.engine.max_model_len}"
        )
    # Policies often fail at the turn limit, but an expert there only needs more turns.
    num_unfinished = sum(e.truncated for e in episodes) if source == "expert" else 0
    if num_unfinished:
        progress.log(
            f"{num_unfinished} of {len(episodes)} experts need more than {max_turns} turns: "
            f"set rollout.max_turns above {max_turns}"
        )


def _log_missing_names(
    names: Sequence[str],
    episodes: Sequence[Episode],
    demonstrations: Sequence[Episode],
    progress: Progress,
) -> None:
    """Log the task names without demonstrations.

    Args:
        names: task names of the suite.
        episodes: all episodes, equally many of each name, in the order of the names.
        demonstrations: episodes that become demonstrations; if empty, nothing is logged.
        progress: receives the log message.
    """
    ids = {episode.task.id for episode in demonstrations}
    num_demos = len(episodes) // len(names)
    missing = [
        name
        for number, name in enumerate(names)
        if ids.isdisjoint(e.task.id for e in episodes[number * num_demos :][:num_demos])
    ]
    if ids and missing:
        progress.log(f"no demonstrations of these task names: {', '.join(missing)}")


def _log_excess_turns(
    demonstrations: Sequence[Episode], max_turns: int, progress: Progress
) -> None:
    """Log the demonstrations that need more turns than a policy has."""
    excess = [n for episode in demonstrations if (n := len(episode.turns)) > max_turns]
    if excess:
        progress.log(
            f"{len(excess)} demonstrations have more turns than rollout.max_turns={max_turns}; "
            f"the longest has {max(excess)}"
        )


def _run_jobs(
    jobs: Sequence[Job],
    runtime: RolloutRuntime,
    completed: Mapping[str, Episode],
    store: Callable[[Episode], None],
    progress: Progress,
) -> list[Episode]:
    """Return the episodes of the jobs in their order; store those that are not completed.

    Episodes without a reward run once more and are not stored.
    """
    missing = [job for job in jobs if job.task.id not in completed]
    progress.start_phase("demonstrations", len(jobs), "episodes", done=len(jobs) - len(missing))

    def add(episode: Episode) -> None:
        if episode.reward is not None:
            store(episode)
            progress.advance()

    new_episodes = runtime.run(missing, add)
    faulty = [job for job, e in zip(missing, new_episodes, strict=True) if e.reward is None]
    if faulty:
        progress.log(f"{len(faulty)} episodes have no reward: running them once more")
        # After the others, so that they replace those of the first run.
        new_episodes += runtime.run(faulty, add)
    episodes = {**completed, **{e.task.id: e for e in new_episodes}}
    return [episodes[job.task.id] for job in jobs]


def check_num_demos(cfg: RunConfig) -> None:
    """Check that each task name has enough training seeds for its demonstrations.

    Raises:
        ConfigError: `suite.train_seeds_per_task` is below `bc.demos_per_task`.
    """
    num_seeds, num_demos = cfg.suite.train_seeds_per_task, cfg.bc.demos_per_task
    if num_demos > num_seeds:
        raise ConfigError(
            f"bc.demos_per_task={num_demos} must be at most "
            f"suite.train_seeds_per_task={num_seeds}: set --config.bc.demos_per_task={num_seeds}"
        )


def demo_tasks(cfg: RunConfig, suite: Suite) -> Iterator[tuple[Task, int]]:
    """Yield the tasks to demonstrate, each with a seed for sampling.

    Raises:
        ConfigError: the suite has no training tasks.
    """
    num_seeds, num_demos = cfg.suite.train_seeds_per_task, cfg.bc.demos_per_task
    for number, name in enumerate(require_task_names(suite, "train")):
        draw = seeds.make_generator(cfg.seed, RandomStream.DEMONSTRATIONS, number)
        for index in draw.choice(num_seeds, num_demos, replace=False):
            # With index 0 it equals the seed of `draw` (`seeds.derive_seed`), which is harmless.
            seed = seeds.derive_seed(cfg.seed, RandomStream.DEMONSTRATIONS, number, int(index))
            yield suite.task(name, "train", int(index)), seed


def longest_prompt(episode: Episode) -> int:
    """Return the number of tokens of the longest prompt of the episode."""
    return max((len(turn.prompt_ids) for turn in episode.turns), default=0)
