"""Measure hindsight relabeling with experts: they fail one task of the arena and solve another.

python tools/check_relabeling.py shop forum

For each template of the sites, the expert of one task runs under a task of another template with
the same start page. Its episode fails. The table counts how often relabeling finds the expert's
own task, how often it finds any task, and how many replays the evaluators reward.
"""

from __future__ import annotations

import functools
import random
import sys
from collections import Counter
from dataclasses import dataclass

from webagent_jax import policy
from webagent_jax.agent import TEMPLATES as PROMPTS
from webagent_jax.agent import ChatTokenizer, PromptFormat
from webagent_jax.arena import selection
from webagent_jax.arena.registry import TEMPLATES, seed_data
from webagent_jax.arena.selection import GeneratedTask
from webagent_jax.arena.task import Data, TaskTemplate, eval_kind
from webagent_jax.browser import BrowserPool
from webagent_jax.config import BrowserConfig
from webagent_jax.rollout import EpisodeConfig, ExpertAgent, run_episode
from webagent_jax.rollout.agents import ExpertSource
from webagent_jax.suites.arena import ArenaSuite
from webagent_jax.suites.arena_hindsight import HindsightIndex, ReplaySource
from webagent_jax.types import Episode, Expert, ResetResult, Task

_TASKS_PER_TEMPLATE = 20
_SEED, _OTHER_SEED = 7, 8  # seeds of the solved tasks and of those that fail


@dataclass(frozen=True)
class ExpertOf:
    """Source of the expert of one task, also for other tasks."""

    generated: GeneratedTask

    def make_expert(self, task: Task, reset_result: ResetResult) -> Expert:
        """Create the expert."""
        return self.generated.template.expert(
            self.generated.instance.slots, reset_result.observation
        )


def main() -> None:
    """Print a table in Markdown."""
    groups = sys.argv[1:]
    templates = [template for template in TEMPLATES if template.group in groups]
    index = HindsightIndex(groups, _TASKS_PER_TEMPLATE, _SEED)
    data = seed_data()
    first_tasks = [_first_task(template, data, _SEED) for template in templates]
    others = [_first_task(template, data, _OTHER_SEED) for template in templates]
    rng = random.Random(0)
    counts: Counter[tuple[str, str]] = Counter()
    with BrowserPool(BrowserConfig()) as pool:
        suite = ArenaSuite(pool)
        for generated in first_tasks:
            kind = eval_kind(generated.instance.eval)
            rng.shuffle(others)
            other = next((o for o in others if _is_other_task(o, generated)), None)
            if kind == "unachievable" or other is None:
                continue
            episode = run(suite, other.task, ExpertOf(generated))
            if episode.reward == 0:
                counts[kind, "episodes"] += 1
                _count_replays(suite, index, episode, generated, counts)
        suite.close()
    columns = ("episodes", "own task", "any task", "replays", "rewarded")
    print(f"| evaluation | {' | '.join(columns)} |")
    print(f"| --- |{' --- |' * len(columns)}")
    for name in sorted({kind for kind, _ in counts}):
        print(f"| {name} | {' | '.join(str(counts[name, column]) for column in columns)} |")


def _first_task(template: TaskTemplate, data: Data, seed: int) -> GeneratedTask:
    return next(selection.generate_tasks([template], data, seed))


def _is_other_task(other: GeneratedTask, generated: GeneratedTask) -> bool:
    """Return whether the task has another template and the same start page."""
    return (
        other.template.name != generated.template.name
        and other.task.start_url == generated.task.start_url
    )


@functools.cache
def _tokenizer() -> ChatTokenizer:
    return ChatTokenizer(policy.resolve_dir("webagent-tiny"))


def run(suite: ArenaSuite, task: Task, source: ExpertSource) -> Episode:
    """Return the episode of an expert under a task."""
    tokenizer = _tokenizer()
    config = EpisodeConfig(
        tokenizer, PromptFormat(PROMPTS["compact"]), 40, max_prompt_tokens=10**6, timeout=300.0
    )
    environment = suite.make_env(task)
    try:
        return run_episode(environment, ExpertAgent(source, tokenizer, thinking=True), task, config)
    finally:
        environment.close()


def _count_replays(
    suite: ArenaSuite,
    index: HindsightIndex,
    episode: Episode,
    generated: GeneratedTask,
    counts: Counter[tuple[str, str]],
) -> None:
    """Replay the candidates of an episode and add the results to the counts."""
    kind = eval_kind(generated.instance.eval)
    solved = set()
    for candidate in index.candidates(episode):
        replay = run(suite, candidate.task, ReplaySource(candidate))
        counts[kind, "replays"] += 1
        if replay.reward == 1:
            counts[kind, "rewarded"] += 1
            solved.add(candidate.task.id)
    counts[kind, "own task"] += generated.task.id in solved
    counts[kind, "any task"] += bool(solved)


if __name__ == "__main__":
    main()
