"""Task templates of the arena, their instances, and their evaluator specifications.

An evaluator specification has WebArena's format (`task_file`, `evaluators`), with placeholders such
as `__SHOPPING__` for the addresses of sites. The functions below build it from parts; all parts of
a specification must hold.
"""

from __future__ import annotations

import collections
import datetime
import json
import random
import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from webagent_jax.arena.site import format_day
from webagent_jax.types import Expert, Observation

EvalKind = Literal["answer", "address", "page", "unachievable"]
"""Object of an evaluation: answer, final address or page content; or an unachievable task."""

Data = Mapping[str, sqlite3.Connection]
"""Seed databases by name, from which tasks are drawn and answers are computed."""

Slots = Mapping[str, str]
"""Values of the slots in the phrasings of a template, by name."""

EvalSpec = dict[str, Any]

_OR = " |OR| "
_MAX_EXTRA_WORDS = 15
_MAX_EXTRA_NUMBERS = 2
_WORD = re.compile(r"\w+")
# "6/5/2023" is three numbers, because the evaluators split words at slashes.
_NUMBER = re.compile(r"\d+(?:[.,:-]\d+)*")
_SMALL_NUMBER = re.compile(r"\d\d?")
_LIST_MARKER = re.compile(r"(?<!\S)(\d\d?) ?[.)](?=\s)")
_ANSWER_REPLACEMENTS = (
    # NLTK keeps the stop of "is 3. All" or "350 m. It" in the word before it.
    (re.compile(r"(?:(?<=\d)|(?<=\b[^\W\d_]))\.(?=\s)"), " ."),
    # NLTK separates only some single quotes from the words inside: "'Complete'" is one word.
    (re.compile(r"(?<!\w)'(.+?)'(?!\w)"), r"\1"),
    # The sign in "46.9848\u00b0" and the dash in "$14.99-$67.95" are parts of words.
    (re.compile(r"(?<=\d)\u00b0"), ""),
    (re.compile(r"(?<=\.\d\d)\s*[-\u2013]\s*(?=\$?\d)"), " - "),
    # Pages write the time 7:00 as 07:00.
    (re.compile(r"(?<![\d:.,])(?=\d:\d\d(?![\d:]))"), "0"),
)


@dataclass(frozen=True, slots=True)
class TaskInstance:
    """Instance of a template, drawn at random."""

    slots: Slots
    eval: EvalSpec


@dataclass(frozen=True, slots=True)
class TaskTemplate:
    """Template of tasks.

    The expert receives the slots, which the intent contains too, and the first page. It reads the
    site through observations only: the slots do not contain the answer.
    """

    name: str  # group and topic: "shop/order-total"
    # WebArena's names; the front page of the first is shown, those of others are open in tabs.
    sites: tuple[str, ...]
    phrasings: tuple[str, ...]  # at least five intents, with the slots in braces
    # Draws an instance; None if the draw gives no suitable task.
    sample: Callable[[Data, random.Random], TaskInstance | None]
    expert: Callable[[Slots, Observation], Expert]

    @property
    def group(self) -> str:
        """Site to which the task counts; "across" for a task on several sites."""
        return self.name.partition("/")[0]


ExpertFactory = Callable[[Slots, Observation], Expert]


class TemplateRegistry(list[TaskTemplate]):
    """Templates of a site, collected by a decorator on their experts."""

    def __init__(self, group: str, *sites: str) -> None:
        super().__init__()
        self._group, self._sites = group, sites

    def add(
        self,
        name: str,
        sample: Callable[[Data, random.Random], TaskInstance | None],
        *phrasings: str,
    ) -> Callable[[ExpertFactory], ExpertFactory]:
        """Return a decorator that adds a template with the decorated function as its expert.

        Args:
            name: topic of the template.
            sample: draws an instance; None if the draw gives no suitable task.
            *phrasings: at least five intents, with the slots in braces.
        """

        def register(expert: ExpertFactory) -> ExpertFactory:
            self.append(
                TaskTemplate(f"{self._group}/{name}", self._sites, phrasings, sample, expert)
            )
            return expert

        return register


def eval_kind(spec: EvalSpec) -> EvalKind:
    """Return the kind of evaluation that a specification describes."""
    if "string_match" in spec["eval_types"]:
        return "unachievable" if spec["string_note"] else "answer"
    return "page" if "program_html" in spec["eval_types"] else "address"


# --- evaluators ----------------------------------------------------------------------------------


def answer_includes(
    *expected_texts: str, excluding: Sequence[str] = (), known_numbers: Sequence[int] = ()
) -> EvalSpec:
    """Require an answer that contains each of these; " |OR| " separates alternatives.

    Args:
        *expected_texts: texts that the answer must contain.
        excluding: options of the task, or all rows of the list that it is about; the answer must
            contain none but the expected ones.
        known_numbers: numbers from which the answer is computed; it may state them
            (`is_hedged`).
    """
    # A correct answer contains its own option, and each option whose name is a part of it.
    excluded_texts = [
        text
        for text in excluding
        if not any(text.lower() in expected.lower() for expected in expected_texts)
    ]
    references = {"must_include": list(expected_texts)}
    spec = _make_spec(
        "string_match",
        reference_answers=references | ({"must_exclude": excluded_texts} if excluded_texts else {}),
    )
    return spec | ({"known_numbers": list(map(str, known_numbers))} if known_numbers else {})


def answer_is(expected_text: str) -> EvalSpec:
    """Require this answer; case does not matter."""
    return _make_spec("string_match", reference_answers={"exact_match": expected_text})


def unachievable(reason: str) -> EvalSpec:
    """Require the answer N/A, for the reason `reason`."""
    spec = answer_is("N/A")
    spec["string_note"] = reason
    return spec


def url_equals(*urls: str) -> EvalSpec:
    """Require that the agent stops at one of these addresses, such as "__SHOPPING__/cart"."""
    return _make_spec("url_match", reference_url=_OR.join(urls), url_note="EXACT")


def page_includes(url: str, selector: str, *expected_texts: str) -> EvalSpec:
    """Require that the joined texts of all elements of a selector contain each of these.

    `url` is the page to open, or "last" for the page where the agent stopped.
    """
    # JSON texts are valid JavaScript literals, so selectors need no other quoting.
    texts = f"[...document.querySelectorAll({json.dumps(selector)})].map((e) => e.innerText)"
    return _page_spec(url, f"{texts}.join(' ; ')", {"must_include": list(expected_texts)})


def page_lists(url: str, selector: str, parts: str, *expected_lines: str) -> EvalSpec:
    """Require that a list contains each of these lines, written as parts joined by ", ".

    Args:
        url: page to open, or "last" for the page where the agent stopped.
        selector: selector of the lines.
        parts: selector of the parts of a line; a part is the value of a field, or a text.
        *expected_lines: lines that the list must contain; each may lack its first parts.
    """
    line = (
        f"[...e.querySelectorAll({json.dumps(parts)})]"
        ".map((part) => part.value ?? part.innerText.trim()).join(', ')"
    )
    texts = f"[...document.querySelectorAll({json.dumps(selector)})].map((e) => {line} + ' ;')"
    # The terminator prevents a quantity of 1 from matching 15.
    references = [f"{expected_line} ;" for expected_line in expected_lines]
    return _page_spec(url, f"{texts}.join(' ')", {"must_include": references})


def page_equals(url: str, selector: str, expected_text: str) -> EvalSpec:
    """Require that the texts of all elements of a selector, joined by " ; ", are exactly this."""
    texts = f"[...document.querySelectorAll({json.dumps(selector)})].map((e) => e.innerText.trim())"
    return _page_spec(url, f"{texts}.join(' ; ')", {"exact_match": expected_text})


def field_includes(selector: str, *expected_texts: str) -> EvalSpec:
    """Require that a field of the page where the agent stopped contains each of these."""
    locator = f"document.querySelector({json.dumps(selector)}).value"
    return _page_spec("last", locator, {"must_include": list(expected_texts)})


def all_of(*specs: EvalSpec) -> EvalSpec:
    """Require all of these specifications."""
    result: EvalSpec = {"eval_types": [], "string_note": ""}
    for spec in specs:
        # Evaluators and pages are joined; any other field is that of the last part which has it.
        types = [name for name in spec["eval_types"] if name not in result["eval_types"]]
        result["eval_types"] += types
        pages = [*result.get("program_html", ()), *spec.get("program_html", ())]
        result |= {key: value for key, value in spec.items() if key != "eval_types"}
        result |= {"program_html": pages} if pages else {}
    return result


def answer_forms(answer: str) -> tuple[str, ...]:
    """Return the answer and, if it differs, its normalized form; a task may accept either.

    The evaluators split answers into words like the NLTK version of WebArena, including its
    quirks: without the normalized form, "The number of orders is 3. All are paid." does not
    contain 3, and "The status is 'Complete'." does not contain Complete.
    """
    normalized = answer
    for pattern, replacement in _ANSWER_REPLACEMENTS:
        normalized = pattern.sub(replacement, normalized)
    return (answer,) if normalized == answer else (answer, normalized)


def is_hedged(answer: str, intent: str, spec: EvalSpec) -> bool:
    """Return whether an answer lists many possible answers instead of giving one.

    WebArena's `must_include` ignores further text, so a list of all small numbers passes every
    question for a count. An answer to a task with such references is hedged if it has

    - more than 15 words beyond those of the references and of the intent, or
    - more than 2 numbers that neither the references nor the intent contain, or any such number if
      the only reference is a number below 100, also with other such numbers or words without
      digits as alternatives. Numbers from which the answer is computed do not count, nor do the
      markers "1. 2. 3." of a list, if several references are required.

    Args:
        answer: message of the agent.
        intent: intent of the task.
        spec: evaluator specification of the task.
    """
    references = spec.get("reference_answers", {}).get("must_include", ())
    if not references:
        return False
    answer = _remove_list_markers(answer, max_items=len(references))
    # 1. Words: each reference counts with its longest alternative. An answer may repeat the intent.
    num_words = sum(
        max(len(_WORD.findall(text)) for text in reference.split(_OR)) for reference in references
    )
    words, intent_words = (
        collections.Counter(_WORD.findall(text.lower())) for text in (answer, intent)
    )
    if (words - intent_words).total() > num_words + _MAX_EXTRA_WORDS:
        return True
    # 2. Numbers: those of the intent cannot be guesses.
    known_numbers = {
        *_NUMBER.findall(" ".join((intent, *references))),
        *spec.get("known_numbers", ()),
    }
    extra_numbers = [number for number in _NUMBER.findall(answer) if number not in known_numbers]
    is_count = len(references) == 1 and _is_small_count(references[0])
    return len(extra_numbers) > (0 if is_count else _MAX_EXTRA_NUMBERS)


def _remove_list_markers(answer: str, max_items: int) -> str:
    """Return the answer without the markers of a numbered list of 2 to `max_items` items."""
    numbers = [int(number) for number in _LIST_MARKER.findall(answer)]
    is_list = 2 <= len(numbers) <= max_items and numbers == list(range(1, len(numbers) + 1))
    return _LIST_MARKER.sub("", answer) if is_list else answer


def _is_small_count(reference: str) -> bool:
    """Return whether all numbers among the alternatives are below 100, and one exists."""
    numbers = [text for text in reference.split(_OR) if re.search(r"\d", text)]
    return bool(numbers) and all(_SMALL_NUMBER.fullmatch(number) for number in numbers)


def _make_spec(evaluator: str, **parts: Any) -> EvalSpec:
    return {"eval_types": [evaluator], "string_note": "", **parts}


def _page_spec(url: str, locator: str, contents: Mapping[str, Any]) -> EvalSpec:
    target = {"url": url, "locator": locator, "prep_actions": [], "required_contents": contents}
    return _make_spec("program_html", program_html=[target])


def date_formats(iso: str) -> str:
    """Return the formats in which an answer may write a day, as one reference."""
    date = datetime.date.fromisoformat(iso[:10])
    texts = [format_day(iso), f"{date.month}/{date.day}/{date.year}", f"{date:%m/%d/%Y}", iso[:10]]
    for month in (f"{date:%B}", f"{date:%b}", f"{date:%b}."):
        for day in (f"{date.day}", f"{date:%d}"):
            texts += [
                f"{month} {day}, {date.year}",
                f"{month} {day} {date.year}",
                f"{day} {month} {date.year}",
            ]
    return _OR.join(dict.fromkeys(texts))


def sample_row(rng: random.Random, rows: Sequence[Any]) -> Any:
    """Return a random row; None without rows."""
    return rng.choice(rows) if rows else None
