"""The tasks: what is selected, that it is WebArena's schema, and that nothing is won by chance."""

from __future__ import annotations

import collections
import itertools
import json
import string
from pathlib import Path

import pytest

from webagent_jax.arena import selection
from webagent_jax.arena.registry import SITES, TEMPLATES
from webagent_jax.arena.selection import TASK_COUNTS, GeneratedTask
from webagent_jax.arena.task import Data, TaskTemplate, eval_kind
from webagent_jax.suites import task_file
from webagent_jax.types import Split

ADDRESSES = {site.task_name: f"http://{site.name}.w1.localhost:1" for site in SITES}


@pytest.fixture(scope="module")
def drafts(data: Data) -> dict[Split, tuple[GeneratedTask, ...]]:
    return selection.select_tasks(TEMPLATES, data)


def test_the_shares_are_those_of_webarena_lite() -> None:
    sums = {
        group: tuple(map(sum, zip(*kinds.values(), strict=True)))
        for group, kinds in TASK_COUNTS.items()
    }
    assert sums == {
        "shop": (142, 45),
        "admin": (147, 35),
        "code": (150, 30),
        "map": (83, 26),
        "forum": (87, 19),
        "across": (38, 10),
    }
    unachievable = sum(kinds.get("unachievable", (0, 0))[1] for kinds in TASK_COUNTS.values())
    assert unachievable / 165 <= 0.03


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.name)
def test_a_template_has_five_phrasings_that_tell_all_of_its_slots(
    template: TaskTemplate, data: Data
) -> None:
    assert len(set(template.phrasings)) >= 5
    draft = next(selection.generate_tasks([template], data, seed=0))
    for phrasing in template.phrasings:
        told = {name for _, name, _, _ in string.Formatter().parse(phrasing) if name}
        assert told == set(draft.instance.slots)
    assert not any(mark in draft.task.intent for mark in "{}")


def test_names_of_templates_are_unique_and_of_a_known_group() -> None:
    names = [template.name for template in TEMPLATES]
    assert len(set(names)) == len(names)
    assert {template.group for template in TEMPLATES} <= set(TASK_COUNTS)


def test_every_site_with_templates_has_its_share(
    drafts: dict[Split, tuple[GeneratedTask, ...]],
) -> None:
    for index, split in enumerate(("train", "test")):
        counted = collections.Counter(
            (draft.template.group, eval_kind(draft.instance.eval)) for draft in drafts[split]
        )
        for group in {template.group for template in TEMPLATES} - {"across"}:
            wanted = {(group, kind): numbers[index] for kind, numbers in TASK_COUNTS[group].items()}
            assert {key: counted[key] for key in wanted} == wanted


def test_no_drawing_is_in_both_splits(drafts: dict[Split, tuple[GeneratedTask, ...]]) -> None:
    keys = {
        split: {(d.template.name, json.dumps(dict(d.instance.slots))) for d in chosen}
        for split, chosen in drafts.items()
    }
    assert not keys["train"] & keys["test"]
    assert all(len(keys[split]) == len(chosen) for split, chosen in drafts.items())
    ids = [draft.task.id for split in drafts.values() for draft in split]
    assert len(set(ids)) == len(ids)


def test_the_selection_is_the_same_every_time(
    data: Data, drafts: dict[Split, tuple[GeneratedTask, ...]]
) -> None:
    again = selection.select_tasks(TEMPLATES, data)
    for split, chosen in drafts.items():
        assert [d.task for d in again[split]] == [d.task for d in chosen]


def test_fresh_tasks_are_none_of_the_test_split(
    data: Data, drafts: dict[Split, tuple[GeneratedTask, ...]]
) -> None:
    tested = {(d.template.name, json.dumps(dict(d.instance.slots))) for d in drafts["test"]}
    source = selection.generate_tasks(TEMPLATES, data, seed=3, excluded=drafts["test"])
    some = list(itertools.islice(source, 400))
    assert not tested & {(d.template.name, json.dumps(dict(d.instance.slots))) for d in some}
    assert len({d.task.id for d in some}) == 400
    other = list(itertools.islice(selection.generate_tasks(TEMPLATES, data, seed=4), 400))
    assert [d.task.intent for d in other] != [d.task.intent for d in some]


def test_every_task_is_read_by_the_loader_of_webarena(
    drafts: dict[Split, tuple[GeneratedTask, ...]], tmp_path: Path
) -> None:
    rows = [selection.to_webarena_json(draft) for split in drafts.values() for draft in split]
    path = tmp_path / "arena.json"
    path.write_text(json.dumps(rows))
    loaded = task_file.load(path, ADDRESSES)
    assert not any(map(task_file.needs_judge, loaded))
    for draft, read in zip((d for split in drafts.values() for d in split), loaded, strict=True):
        spec = task_file.fill_placeholders(dict(draft.task.eval), ADDRESSES)
        assert read.start_url == task_file.fill_placeholders(draft.task.start_url, ADDRESSES)
        assert dict(read.eval) == {key: spec[key] for key in read.eval}
