"""Selection of tasks over all templates, the same on every machine.

The numbers of tasks per site and kind follow WebArena-Lite in both splits, except for unachievable
tasks, of which there are fewer (4 of 165 test tasks instead of 10): a policy that always answers
N/A scores at most 3 %.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from webagent_jax.arena import random_data
from webagent_jax.arena.task import Data, EvalKind, TaskInstance, TaskTemplate, eval_kind
from webagent_jax.types import Split, Task

_MAX_TRIES = 200  # consecutive draws without a new task after which a template is exhausted

TASK_COUNTS: Mapping[str, Mapping[EvalKind, tuple[int, int]]] = {
    "shop": {"answer": (71, 22), "address": (32, 10), "page": (36, 12), "unachievable": (3, 1)},
    "admin": {"answer": (74, 18), "address": (8, 2), "page": (61, 14), "unachievable": (4, 1)},
    "code": {"answer": (46, 9), "address": (24, 5), "page": (77, 15), "unachievable": (3, 1)},
    "map": {"answer": (73, 22), "address": (3, 1), "page": (5, 2), "unachievable": (2, 1)},
    "forum": {"answer": (12, 2), "page": (75, 17)},
    "across": {"answer": (10, 3), "page": (28, 7)},
}
"""Numbers of training and test tasks by site and kind; 647 and 165 in total."""


@dataclass(frozen=True, slots=True)
class GeneratedTask:
    """Task with the template and the instance that it was generated from."""

    task: Task
    template: TaskTemplate
    instance: TaskInstance


def select_tasks(
    templates: Sequence[TaskTemplate], data: Data
) -> dict[Split, tuple[GeneratedTask, ...]]:
    """Return the tasks of both splits; no instance of a template is in both.

    The templates of a site and kind alternate; exhausted ones are skipped, and so are
    kinds for which a site has no template.
    """
    splits: dict[Split, list[GeneratedTask]] = {"train": [], "test": []}
    for group, kinds in TASK_COUNTS.items():
        site_templates = [template for template in templates if template.group == group]
        streams = {
            template.name: _generate(template, data, "selection") for template in site_templates
        }
        # The kind of a template is that of its first task; the task is put back below.
        first_tasks = {name: next(source, None) for name, source in streams.items()}
        for kind, (train, test) in kinds.items():
            queues = [
                itertools.chain([first], streams[name])
                for name, first in first_tasks.items()
                if first is not None and eval_kind(first.instance.eval) == kind
            ]
            source = _round_robin(queues)
            tasks = list(itertools.islice(source, train + test))
            # Evenly spaced over the templates. A kind with too few tasks has only training tasks.
            flags = _evenly_spaced_flags(len(tasks), test if len(tasks) == train + test else 0)
            test_tasks = list(itertools.compress(tasks, flags))
            splits["test"] += test_tasks
            # The slots of all tasks differ, but two tasks may be one instance (`_instance_keys`):
            # a later task, of the same template if possible, replaces the training task.
            test_keys = _all_keys(test_tasks)
            for generated, is_test in zip(tasks, flags, strict=True):
                if not is_test:
                    later = itertools.chain(streams[generated.template.name], source)
                    candidates = _exclude(itertools.chain([generated], later), test_keys)
                    splits["train"] += itertools.islice(candidates, 1)
    return {split: tuple(tasks) for split, tasks in splits.items()}


def generate_tasks(
    templates: Sequence[TaskTemplate], data: Data, seed: int, excluded: Sequence[GeneratedTask] = ()
) -> Iterator[GeneratedTask]:
    """Yield tasks from a seed without end; the templates alternate.

    Args:
        templates: templates to draw from.
        data: seed databases.
        seed: seed of the draws.
        excluded: tasks to exclude; no yielded task is an instance of one of them.
    """
    queues = [_generate(template, data, f"fresh-{seed}") for template in templates]
    return _exclude(_round_robin(queues), _all_keys(excluded))


def _exclude(tasks: Iterable[GeneratedTask], keys: set[str]) -> Iterator[GeneratedTask]:
    """Return an iterator over the tasks whose instance has none of these keys."""
    return (generated for generated in tasks if keys.isdisjoint(_instance_keys(generated)))


def _all_keys(tasks: Iterable[GeneratedTask]) -> set[str]:
    return {key for generated in tasks for key in _instance_keys(generated)}


def _generate(template: TaskTemplate, data: Data, series: str) -> Iterator[GeneratedTask]:
    """Yield different tasks until the template is exhausted."""
    rng = random_data.random_stream("tasks", template.name, series)
    keys: set[str] = set()
    tries = 0
    while tries < _MAX_TRIES:
        instance = template.sample(data, rng)
        # Drawn for rejected instances too: the order of the draws determines all tasks.
        phrasing = rng.choice(template.phrasings)
        if instance is None or (key := _slots_key(template, instance)) in keys:
            tries += 1
            continue
        tries = 0
        keys.add(key)
        task = Task(
            id=f"arena/{template.name}/{'' if series == 'selection' else series + '-'}{len(keys)}",
            suite="arena",
            sites=template.sites,
            intent=phrasing.format(**instance.slots),
            # The front page of each site, each in a tab.
            start_url=" |AND| ".join(f"__{site.upper()}__/" for site in template.sites),
            template=template.name,
            eval=instance.eval,
        )
        yield GeneratedTask(task, template, instance)


def _slots_key(template: TaskTemplate, instance: TaskInstance) -> str:
    return f"{template.name} {json.dumps(dict(instance.slots), sort_keys=True)}"


def _instance_keys(generated: GeneratedTask) -> set[str]:
    """Return the keys of a task's instance; tasks with a common key are one instance.

    Tasks of a template are one instance if their slots are equal. Some slots are only wordings, so
    equal evaluators suffice, except those of answers: different questions may have one answer.
    """
    keys = {_slots_key(generated.template, generated.instance)}
    evaluators = generated.instance.eval
    if "string_match" not in evaluators["eval_types"]:
        keys.add(f"{generated.template.name} {json.dumps(evaluators, sort_keys=True)}")
    return keys


def _round_robin(sources: Sequence[Iterator[GeneratedTask]]) -> Iterator[GeneratedTask]:
    """Yield one task of each source per round until all are exhausted."""
    remaining = list(sources)
    while remaining:
        active = []
        for source in remaining:
            generated = next(source, None)
            if generated is not None:
                active.append(source)
                yield generated
        remaining = active


def _evenly_spaced_flags(count: int, num_true: int) -> list[bool]:
    """Return `count` flags with `num_true` times True, spaced evenly."""
    return [(i + 1) * num_true // count > i * num_true // count for i in range(count)]
