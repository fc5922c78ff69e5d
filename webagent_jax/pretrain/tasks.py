"""Instructions for generated pages, and the correct responses.

An instruction is one step (click an element, type text, select an option, read a value) or several
steps, one per turn; some steps share a verb. The exercises train reading, copying, matching a
phrase to the id of its element, following an instruction over turns, and the action grammar. They
do not train the use of real sites: behavior cloning and reinforcement learning do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from webagent_jax.pretrain import pages, words
from webagent_jax.pretrain.pages import Item, Page
from webagent_jax.types import Action, ActionKind

_ERROR_ENDINGS = ["is disabled", "is not a text field", "is covered", "cannot be used", "is busy"]


@dataclass(frozen=True)
class Instruction:
    """Step on a page: its text, and the correct thought and action."""

    words: str  # text of the step; empty if the text of an earlier step includes it
    thought: str  # thought of the correct response
    action: Action  # action of the correct response
    next_page: Page  # page after the action
    intent_phrase: str  # phrase of the intent that names the target, see `TaskQuoter.thought`


@dataclass(frozen=True)
class Exercise:
    """Task of one or more steps."""

    intent: str  # text of all steps
    steps: tuple[tuple[Page, Instruction], ...]  # page before each step, and the step


def quote(rng: np.random.Generator, name: str) -> str:
    """Return the name, in quotes with probability 0.6."""
    return f'"{name}"' if rng.random() < 0.6 else name


def make_instruction(rng: np.random.Generator, page: Page, item: Item) -> Instruction:
    """Generate a step for one element: type, select or click, depending on its kind."""
    match item.kind:
        case "textbox":
            return _type(rng, page, item)
        case "select":
            return _select(rng, page, item)
    return _click(rng, page, item)


def make_exercise(rng: np.random.Generator, steps: int, max_elements: int = 14) -> Exercise:
    """Generate an exercise.

    Args:
        rng: random generator.
        steps: number of turns.
        max_elements: maximum elements per page.
    """
    page = pages.generate(rng, max_elements)
    # A tenth of the single steps read a table row, if the page has one.
    if steps == 1 and rng.random() < 0.1 and any(item.kind == "row" for item in page):
        return _make_reading_exercise(rng, page)
    pairs: list[tuple[Page, Instruction]] = []
    used_ids: set[str] = set()
    while len(pairs) < steps:
        candidates = [item for item in pages.elements(page) if item.id not in used_ids]
        if not candidates:
            page, used_ids = pages.generate(rng, max_elements), set()
            continue
        item = candidates[int(rng.integers(len(candidates)))]
        # Elements of the same kind may share a verb of the intent: "tick a, b and c".
        same_kind = [other for other in candidates if other.kind == item.kind and other.name]
        count = min(steps - len(pairs), len(same_kind))
        if count > 1 and item.kind in ("checkbox", "textbox", "item", "option"):
            items = [same_kind[i] for i in rng.permutation(len(same_kind))[:count]]
            instructions = _share_verb(rng, page, items)
        else:
            instructions = [make_instruction(rng, page, item)]
        for instruction in instructions:
            pairs.append((page, instruction))
            page = instruction.next_page
            used_ids.add(instruction.action.element_id or "")
        # Links and tabs may lead to another page.
        if item.kind in ("link", "tab") and rng.random() < 0.5:
            page, used_ids = pages.generate(rng, max_elements), set()
    parts = [step.words for _, step in pairs if step.words]
    return Exercise(_join_steps(rng, parts), tuple(pairs))


def _share_verb(rng: np.random.Generator, page: Page, items: Sequence[Item]) -> list[Instruction]:
    """Generate steps with one verb: `tick a, b and c`; `type x in a and y in b`."""
    instructions: list[Instruction] = []
    value = words.phrase(rng) if rng.random() < 0.5 else None
    for item in items:
        step = _type(rng, page, item, value) if item.kind == "textbox" else _click(rng, page, item)
        instructions.append(step)
        page = step.next_page
    names = [quote(rng, item.name) for item in items]
    if items[0].kind == "textbox":
        values = [str(step.action.value) for step in instructions]
        verb = words.pick(rng, ["type", "write", "put", "fill in"])
        link = words.pick(rng, ["in", "into", "as"])
        if value is not None:
            # The common value does not distinguish the steps, so thoughts quote the names.
            instructions = [
                replace(o, intent_phrase=i.name) for o, i in zip(instructions, items, strict=True)
            ]
            text = f"{verb} {quote(rng, value)} {link} {_enumerate(rng, names)}"
        elif rng.random() < 0.5:
            pairs = [f"{quote(rng, v)} {link} {n}" for v, n in zip(values, names, strict=True)]
            text = f"{verb} {_enumerate(rng, pairs)}"
        else:
            prefix = words.pick(rng, ["the ", "", "for "])
            pairs = [f"{prefix}{n} {quote(rng, v)}" for v, n in zip(values, names, strict=True)]
            text = f"{verb} {_enumerate(rng, pairs)}"
    else:
        verb = words.pick(rng, ["tick", "check", "mark", "click", "choose", "take"])
        text = f"{verb} {_enumerate(rng, names)}"
    return [replace(step, words="" if n else text) for n, step in enumerate(instructions)]


def _enumerate(rng: np.random.Generator, parts: Sequence[str]) -> str:
    last = words.pick(rng, [" and ", ", ", ", and "])
    return ", ".join(parts[:-1]) + last + parts[-1] if len(parts) > 1 else parts[0]


def wrong_action(rng: np.random.Generator, page: Page) -> Instruction | None:
    """Generate a wrong step that does not change the page; None for a page without elements."""
    items = pages.elements(page)
    step = make_instruction(rng, page, items[int(rng.integers(len(items)))]) if items else None
    return step and replace(step, next_page=page)


def error_text(rng: np.random.Generator, instruction: Instruction) -> str:
    """Generate the error text of a page after a wrong step."""
    if rng.random() < 0.5:
        return f"element {instruction.action.element_id} {words.pick(rng, _ERROR_ENDINGS)}"
    return words.sentence(rng)


def make_instructions(
    rng: np.random.Generator, count: int, max_elements: int
) -> tuple[Page, list[Instruction]]:
    """Generate `count` independent steps on one page: dense supervision of matching."""
    page = pages.generate(rng, max_elements)
    items = pages.elements(page)
    return page, [
        make_instruction(rng, page, items[int(rng.integers(len(items)))]) for _ in range(count)
    ]


def _join_steps(rng: np.random.Generator, parts: Sequence[str]) -> str:
    separator = words.pick(rng, [", then ", "; ", ", ", ". Then ", ". "])
    last = words.pick(rng, [" and ", ", then ", " and then ", "; "])
    text = separator.join(parts[:-1]) + last + parts[-1] if len(parts) > 1 else parts[0]
    # Filler words prevent a policy from finding the steps by position alone.
    if rng.random() < 0.25:
        openings = ["please ", "now ", "on this page, ", "here, ", "first, ", "I want you to "]
        text = words.pick(rng, openings) + text
    if rng.random() < 0.2:
        text += words.pick(rng, [" for me", ", thanks", " to go on", " right away", " on the page"])
    if rng.random() < 0.07:
        text = f"{words.sentence(rng)} {text}"
    return text[:1].upper() + text[1:] + words.pick(rng, [".", ".", "", "!"])


def _thought_name(item: Item) -> str:
    """Return the name of an element in thoughts, as at the end of its line."""
    return f"{item.name or item.kind} [{item.id}]"


def _is_only_of_kind(page: Page, item: Item) -> bool:
    """Return whether the page has no other element of the same kind."""
    return sum(other.kind == item.kind for other in page) == 1


def _click(rng: np.random.Generator, page: Page, item: Item) -> Instruction:
    verb = words.pick(rng, ["click", "click on", "press", "open", "choose", "pick", "hit", "go to"])
    next_page = page
    if item.kind in ("checkbox", "radio"):
        verb = words.pick(rng, ["tick", "check", "mark", "click", "choose"])
        next_page = pages.put(page, replace(item, value="off" if item.value == "on" else "on"))
    name = quote(rng, item.name)
    form = words.pick(
        rng, ["{n}", "{n}", "{n}", "the {n} {k}", "{n} {k}", "the {n}", "the {k} {n}"]
    )
    if rng.random() < 0.2:
        form = words.pick(
            rng, ["the {k} named {n}", "the element called {n}", "the {k} that says {n}"]
        )
    # A kind alone identifies an element only if no other has it.
    if rng.random() < 0.1 and _is_only_of_kind(page, item):
        form = "the {k}"
    return Instruction(
        f"{verb} {form.format(n=name, k=item.kind)}",
        f"click {_thought_name(item)}",
        Action(ActionKind.CLICK, item.id),
        next_page,
        intent_phrase=item.kind if form == "the {k}" else item.name,
    )


def _type(
    rng: np.random.Generator, page: Page, item: Item, value: str | None = None
) -> Instruction:
    value = value or words.phrase(rng)
    if _is_only_of_kind(page, item) and (not item.name or rng.random() < 0.3):
        target = words.pick(rng, ["the field", "the box", "the text box", "the empty field"])
    elif item.name:
        target = words.pick(rng, ["{}", "the {} field", "the {} box", "the textbox {}"])
        target = target.format(quote(rng, item.name))
    else:
        # A nameless field among others can only be named by its id.
        target = f"box {item.id}"
    form = words.pick(
        rng,
        [
            "type {v} in {w}",
            "write {v} into {w}",
            "fill {v} in {w}",
            "put {v} into {w}",
            "fill {w} with {v}",
            "give {w} the value {v}",
        ],
    )
    return Instruction(
        form.format(v=quote(rng, value), w=target),
        f'type "{value}" in {_thought_name(item)}',
        Action(ActionKind.TYPE, item.id, value),
        pages.put(page, replace(item, value=value)),
        intent_phrase=value,
    )


def _select(rng: np.random.Generator, page: Page, item: Item) -> Instruction:
    option = words.pick(rng, list(item.options))
    if item.name and rng.random() < 0.7:
        suffix = f" in {quote(rng, item.name)}"
    elif _is_only_of_kind(page, item):
        suffix = words.pick(rng, ["", " in the dropdown", " in the menu", " of the options"])
    else:
        suffix = f" in select {item.id}"
    form = words.pick(rng, ["pick {}", "set {}", "take {}", "change to {}"])
    return Instruction(
        form.format(quote(rng, option)) + suffix,
        f'select "{option}" in {_thought_name(item)}',
        Action(ActionKind.SELECT, item.id, option),
        pages.put(page, replace(item, value=option)),
        intent_phrase=option,
    )


def _make_reading_exercise(rng: np.random.Generator, page: Page) -> Exercise:
    rows = [item for item in page if item.kind == "row"]
    row = rows[int(rng.integers(len(rows)))]
    form = words.pick(rng, ["what is {}?", "read {}", "tell me {}", "what stands beside {}?"])
    step = Instruction(
        form.format(quote(rng, row.name)),
        f'"{row.name}" is "{row.value}"',
        Action(ActionKind.EXIT, value=row.value),
        page,
        intent_phrase=row.name,
    )
    return Exercise(_join_steps(rng, [step.words]), ((page, step),))
