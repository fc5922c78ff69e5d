"""Which tasks there are: one selection over all templates, the same every time and everywhere.

How many each site gets, and by what they are decided, follows WebArena-Lite: its test split to the
task, and its training split. Only unachievable tasks are fewer (4 of 165 against 10), so that
always answering N/A is not worth more than 3 %.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from webagent_jax.arena import random_data
from webagent_jax.arena.task import Data, Instance, Kind, Template, kind_of
from webagent_jax.types import Split, Task

_TRIES = 200  # drawings in a row without a new task, after which a template is exhausted

SHARES: Mapping[str, Mapping[Kind, tuple[int, int]]] = {
    "shop": {"answer": (71, 22), "address": (32, 10), "page": (36, 12), "unachievable": (3, 1)},
    "admin": {"answer": (74, 18), "address": (8, 2), "page": (61, 14), "unachievable": (4, 1)},
    "code": {"answer": (46, 9), "address": (24, 5), "page": (77, 15), "unachievable": (3, 1)},
    "map": {"answer": (73, 22), "address": (3, 1), "page": (5, 2), "unachievable": (2, 1)},
    "forum": {"answer": (12, 2), "page": (75, 17)},
    "across": {"answer": (10, 3), "page": (28, 7)},
}
"""Tasks for training and for testing, by site and by what decides; 647 and 165 in all."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A task, and what it was made from."""

    task: Task
    template: Template
    instance: Instance


def select(templates: Sequence[Template], data: Data) -> dict[Split, tuple[Draft, ...]]:
    """The tasks of both splits. No drawing of a template is in both.

    Within a site and a kind, templates take turns; one that has no more to give is passed over. A
    kind for which a site has no template is left out.
    """
    chosen: dict[Split, list[Draft]] = {"train": [], "test": []}
    for group, kinds in SHARES.items():
        own = [template for template in templates if template.group == group]
        sources = {template.name: _drawings(template, data, "selection") for template in own}
        firsts = {name: next(source, None) for name, source in sources.items()}
        for kind, (train, test) in kinds.items():
            queues = [
                itertools.chain([first], sources[name])
                for name, first in firsts.items()
                if first is not None and kind_of(first.instance.eval) == kind
            ]
            drafts = list(itertools.islice(_in_turn(queues), train + test))
            split = _spread(len(drafts), test if len(drafts) == train + test else 0)
            for draft, tested in zip(drafts, split, strict=True):
                chosen["test" if tested else "train"].append(draft)
    return {split: tuple(drafts) for split, drafts in chosen.items()}


def fresh(
    templates: Sequence[Template], data: Data, seed: int, besides: Sequence[Draft] = ()
) -> Iterator[Draft]:
    """Tasks without end from a seed, templates in turn; none is drawn like one of `besides`."""
    known = {_key(draft.template, draft.instance) for draft in besides}
    queues = [_drawings(template, data, f"fresh-{seed}") for template in templates]
    for draft in _in_turn(queues):
        if _key(draft.template, draft.instance) not in known:
            yield draft


def row(draft: Draft) -> dict[str, object]:
    """The task in WebArena's JSON schema."""
    task = draft.task
    return {
        "sites": list(task.sites),
        "task_id": task.id,
        "require_login": True,
        "storage_state": None,
        "start_url": task.start_url,
        "geolocation": None,
        "intent_template": draft.template.phrasings[0],
        "instantiation_dict": dict(draft.instance.slots),
        "intent": task.intent,
        "require_reset": False,
        "eval": task.eval,
    }


def _drawings(template: Template, data: Data, series: str) -> Iterator[Draft]:
    """All different; ends when the template has no more to give."""
    rng = random_data.stream("tasks", template.name, series)
    seen: set[str] = set()
    tries = 0
    while tries < _TRIES:
        instance = template.draw(data, rng)
        phrasing = rng.choice(template.phrasings)
        if instance is None or (key := _key(template, instance)) in seen:
            tries += 1
            continue
        tries = 0
        seen.add(key)
        task = Task(
            id=f"arena/{template.name}/{'' if series == 'selection' else series + '-'}{len(seen)}",
            suite="arena",
            sites=template.sites,
            intent=phrasing.format(**instance.slots),
            start_url=" |AND| ".join(_starts(template, instance)),
            eval=instance.eval,
        )
        yield Draft(task, template, instance)


def _starts(template: Template, instance: Instance) -> Iterator[str]:
    """Where the task begins, and the front pages of its other sites, a tab each."""
    first, *others = (f"__{site.upper()}__" for site in template.sites)
    yield f"{first}{instance.start}"
    yield from (f"{site}/" for site in others)


def _key(template: Template, instance: Instance) -> str:
    return f"{template.name} {json.dumps(dict(instance.slots), sort_keys=True)}"


def _in_turn(sources: Sequence[Iterator[Draft]]) -> Iterator[Draft]:
    """One of each source, round after round, until all have ended."""
    left = list(sources)
    while left:
        going = []
        for source in left:
            draft = next(source, None)
            if draft is not None:
                going.append(source)
                yield draft
        left = going


def _spread(count: int, tested: int) -> list[bool]:
    """`tested` times True among `count`, as evenly as can be."""
    return [(i + 1) * tested // count > i * tested // count for i in range(count)]
