"""Hindsight relabeling of arena episodes (AgentHER, arXiv 2603.21357).

`HindsightIndex` proposes tasks by the addresses, answers and texts of an episode. `ReplaySource`
repeats the actions of the episode under a proposed task, so that the evaluators of that task
decide.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from webagent_jax import expert_steps
from webagent_jax.arena import selection
from webagent_jax.arena.registry import SITES, TEMPLATES, seed_data
from webagent_jax.arena.selection import GeneratedTask
from webagent_jax.arena.task import eval_kind
from webagent_jax.suites.arena import accepts_answer
from webagent_jax.types import (
    Action,
    ActionKind,
    Episode,
    Expert,
    Observation,
    ResetResult,
    Task,
)

_MAX_CANDIDATES = 8  # replays of one episode
_PLACEHOLDERS = {site.name: f"__{site.task_name.upper()}__" for site in SITES}


@dataclass(frozen=True, slots=True)
class Step:
    """Page of an episode and the action executed on it."""

    page: Observation
    action: Action


@dataclass(frozen=True, slots=True)
class Candidate:
    """Task that a part of an episode may solve."""

    task: Task
    steps: tuple[Step, ...]
    answer: str  # message of the exit after the steps


class HindsightIndex:
    """Index of tasks drawn from the templates, excluding the tasks of the test split.

    Args:
        groups: sites of the tasks, such as "shop"; "across" for tasks on several sites.
        tasks_per_template: maximum number of tasks drawn from a template.
        seed: seed of the draws.
    """

    def __init__(self, groups: Collection[str], tasks_per_template: int, seed: int) -> None:
        self._by_address: dict[str, list[GeneratedTask]] = defaultdict(list)
        self._others: list[GeneratedTask] = []
        data = seed_data()
        test = selection.select_tasks(TEMPLATES, data)["test"]
        for template in TEMPLATES:
            if template.group not in groups:
                continue
            tasks = selection.generate_tasks([template], data, seed, excluded=test)
            for generated in itertools.islice(tasks, tasks_per_template):
                if generated.instance.eval["eval_types"] == ["url_match"]:
                    for url in generated.instance.eval["reference_url"].split(" |OR| "):
                        self._by_address[url.rstrip("/")].append(generated)
                elif eval_kind(generated.instance.eval) != "unachievable":
                    self._others.append(generated)
        for connection in data.values():
            connection.close()
        # Tasks with much text first: few episodes contain all of it by chance.
        self._others.sort(key=lambda generated: -sum(map(len, generated.instance.slots.values())))

    def candidates(self, episode: Episode) -> list[Candidate]:
        """Return the tasks that the episode may solve, at most one of a template.

        - A task about an address: the episode reaches it; its steps end there.
        - A task with an answer: the answer of the episode passes, and the pages and actions contain
          all words of the slots.
        - A task about the content of a page: the pages and actions contain all words of the slots,
          and an action those of one slot.

        All have the start page of the episode. Refused actions are not steps, nor are links between
        two visits of the same page.
        """
        steps, end_page = _executed_steps(episode)
        if not steps:
            return []
        pages = [step.page for step in steps] + ([end_page] if end_page else [])
        found: dict[str, Candidate] = {}
        for length, page in enumerate(pages[1:], start=1):
            for generated in self._by_address.get(_placeholder_url(page.url), ()):
                if _starts_like(generated, episode):
                    found.setdefault(
                        generated.template.name, Candidate(generated.task, steps[:length], "")
                    )
        acted_text = "\n".join(_acted_texts(steps)).lower()
        text = "\n".join([*map(expert_steps.page_text, pages), acted_text]).lower()
        for generated in self._others:
            if len(found) == _MAX_CANDIDATES:
                break
            slots = [slot.lower() for slot in generated.instance.slots.values()]
            if not _starts_like(generated, episode) or not all(slot in text for slot in slots):
                continue
            if eval_kind(generated.instance.eval) == "answer":
                answer = episode.answer or ""
                is_candidate = accepts_answer(generated.task, episode.answer)
            else:
                is_candidate, answer = any(slot in acted_text for slot in slots), ""
            if is_candidate:
                found.setdefault(generated.template.name, Candidate(generated.task, steps, answer))
        return list(found.values())[:_MAX_CANDIDATES]


class ReplaySource:
    """Expert that repeats the steps of a candidate."""

    def __init__(self, candidate: Candidate) -> None:
        self._candidate = candidate

    def make_expert(self, task: Task, reset_result: ResetResult) -> Expert:
        """Create the expert; it raises LookupError on a page without the element of its step."""
        return self._replay(reset_result.observation)

    def _replay(self, page: Observation) -> Expert:
        for step in self._candidate.steps:
            page = yield expert_steps.decide(page, _translate(step, page))
        answer = self._candidate.answer
        yield from expert_steps.answer(answer) if answer else expert_steps.finish()


def _executed_steps(episode: Episode) -> tuple[tuple[Step, ...], Observation | None]:
    """Return the steps of the episode without detours, and its end page.

    The end page is None if the episode has no exit: no turn observes its last page.
    """
    steps: list[Step] = []
    for turn, following in itertools.zip_longest(episode.turns, episode.turns[1:]):
        page, action = turn.observation, turn.action
        if not isinstance(action, Action):
            continue
        _cut_detour(steps, page)
        if action.kind is ActionKind.EXIT:
            return tuple(steps), page
        is_refused = following is not None and following.observation.error is not None
        has_element = action.element_id is None or action.element_id in page.elements
        if has_element and not is_refused:
            steps.append(Step(page, action))
    return tuple(steps), None


def _cut_detour(steps: list[Step], page: Observation) -> None:
    """Remove the steps since the first visit of a page if they follow links only.

    Other elements may change the state of the site.
    """
    for index, step in enumerate(steps):
        if (step.page.url, step.page.text) == (page.url, page.text):
            if all(_element_kind(other) in ("", "link") for other in steps[index:]):
                del steps[index:]
            return


def _element_kind(step: Step) -> str:
    """Return the kind of the element of an action; empty without an element."""
    return step.page.elements[step.action.element_id].kind if step.action.element_id else ""


def _translate(step: Step, page: Observation) -> Action:
    """Return the action of a step with the id of its element on another visit of the page.

    Raises:
        LookupError: the page has no such element.
    """
    if step.action.element_id is None:
        return step.action
    index = _same_elements(step.page, step).index(step.action.element_id)
    return replace(step.action, element_id=_same_elements(page, step)[index])


def _same_elements(page: Observation, step: Step) -> Sequence[str]:
    """Return the ids of the elements with kind and name of the element of a step."""
    element = step.page.elements[step.action.element_id or ""]
    key = (element.kind, element.name)
    return [i for i, other in page.elements.items() if (other.kind, other.name) == key]


def _placeholder_url(url: str) -> str:
    """Return the address with the placeholder of its site, without a trailing slash."""
    parts = urlsplit(url)
    site = (parts.hostname or "").partition(".")[0]
    origin = f"{parts.scheme}://{parts.netloc}"
    return f"{_PLACEHOLDERS.get(site, origin)}{url.removeprefix(origin)}".rstrip("/")


def _starts_like(generated: GeneratedTask, episode: Episode) -> bool:
    return generated.task.start_url == episode.task.start_url


def _acted_texts(steps: Sequence[Step]) -> Iterator[str]:
    """Yield the name of the element and the value of each action."""
    for step in steps:
        if step.action.element_id is not None:
            yield step.page.elements[step.action.element_id].name
        yield step.action.value or ""
