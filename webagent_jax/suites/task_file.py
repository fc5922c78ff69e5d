"""WebArena's task files: what there is to do on its sites, and how it is judged, as JSON.

A file is a list of objects, in the form of WebArena (812 tasks), WebArena-Lite (165 tasks to test
on and 647 to train on), WebRL and WebAgent-R1. Addresses stand in it as placeholders such as
`__GITLAB__`. What the released harnesses stumble over is mended here, once, so that evaluators read
one form: a text where a list of texts belongs is a list of one (task 81 of WebArena-Lite, at which
the released evaluator breaks off), and what is empty or null is not there.

Zhou et al. 2023, arXiv 2307.13854; Liu et al. 2024, arXiv 2408.06327.
"""

from __future__ import annotations

import json
import re
import reprlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from webagent_jax.config import ConfigError
from webagent_jax.types import Task
from webagent_jax.unicode import to_well_formed

SITES = ("shopping", "shopping_admin", "reddit", "gitlab", "wikipedia", "map", "homepage")

NOWHERE: Mapping[str, str] = {site: f"http://{site}.invalid" for site in SITES}
"""Addresses to load tasks at whose sites are chosen later, by `placed`."""

UNACHIEVABLE = "N/A"
"""As the whole of `fuzzy_match`: the task cannot be done, and the answer must say so, or why."""

FUNCTIONS: Mapping[str, int] = {
    "shopping_get_latest_order_url": 0,
    "shopping_get_sku_latest_review_author": 1,
    "shopping_get_sku_latest_review_rating": 1,
    "reddit_get_post_url": 1,
    "gitlab_get_project_memeber_role": 1,  # spelled so in the files
}
"""What `func:` may call, and with how many arguments beside the page."""

_EVAL_TYPES = ("string_match", "url_match", "program_html")
_CONTENTS = ("exact_match", "must_include", "fuzzy_match")
_URL_NOTES = ("", "EXACT", "GOLD in PRED")
_LOCATORS = ("document.", "[...document.")

_PLACEHOLDER = re.compile(f"__({'|'.join(SITES).upper()})__")
_NOWHERE = re.compile(rf"http://({'|'.join(SITES)})\.invalid\b")
_ARGUMENT = r"""(?:__page__|'[^']*'|"[^"]*")"""
_CALL = re.compile(rf"func:(\w+)\(\s*({_ARGUMENT}(?:\s*,\s*{_ARGUMENT})*)?\s*\)\s*")
_QUOTED = re.compile(r"""'([^']*)'|"([^"]*)\"""")


@dataclass(frozen=True, slots=True)
class Call:
    """A `func:` of a file: read, never executed as code."""

    name: str
    arguments: tuple[str, ...]  # without `__page__`: every function is given the page


def load(path: Path | str, addresses: Mapping[str, str]) -> tuple[Task, ...]:
    """The tasks of a file, in its order, at the given addresses.

    A row without `task_id` gets its index as one; a row without `eval`, as in WebRL's list of
    instructions, becomes a task that can be played but not scored.

    Args:
        path: the file, UTF-8.
        addresses: of the sites, by the names of SITES.

    Raises:
        ConfigError: an address is missing, or a field is not what it must be; says how to mend it.
    """
    path = Path(path)
    rows = _rows(path)
    _check_addresses(rows, addresses, path.name)
    at = {site: address.rstrip("/") for site, address in addresses.items()}
    tasks = tuple(_task(filled(row, at), index, path.name) for index, row in enumerate(rows))
    seen: set[str] = set()
    for task in tasks:
        if task.id in seen:
            raise ConfigError(f"{path.name} has two tasks {task.id}: give each its own task_id")
        seen.add(task.id)
    return tasks


def addresses_from_environment(
    environ: Mapping[str, str], needed: Collection[str] = ()
) -> dict[str, str]:
    """The sites that are set, as `WA_GITLAB` (BrowserGym) or as `GITLAB` (WebArena).

    Where both are set the longer name counts, because nothing but WebArena uses it.

    Raises:
        ConfigError: some of the `needed` sites are not set; names all of them.
    """
    found = {site: environ.get(f"WA_{site.upper()}") or environ.get(site.upper()) for site in SITES}
    addresses = {site: address for site, address in found.items() if address}
    _check_complete(addresses, needed, "the environment")
    return addresses


def placed(task: Task, addresses: Mapping[str, str]) -> Task:
    """A task that was loaded at NOWHERE, at the addresses of its sites."""
    at = {site: address.rstrip("/") for site, address in addresses.items()}
    return replace(
        task,
        intent=filled(task.intent, at, _NOWHERE),
        start_url=filled(task.start_url, at, _NOWHERE),
        eval=filled(dict(task.eval), at, _NOWHERE),
    )


def filled(value: Any, addresses: Mapping[str, str], site: re.Pattern[str] = _PLACEHOLDER) -> Any:
    """`value` with what stands for a site in any of its texts replaced, as the harnesses do."""
    match value:
        case str():
            return site.sub(lambda found: addresses[found[1].lower()], value)
        case list():
            return [filled(item, addresses, site) for item in value]
        case dict():
            return {key: filled(item, addresses, site) for key, item in value.items()}
    return value


def needs_judge(task: Task) -> bool:
    """Whether no rule decides the task, so that a language model has to be asked."""
    pages = [target["required_contents"] for target in task.eval.get("program_html", ())]
    wanted = [task.eval.get("reference_answers", {}), *pages]
    return any("fuzzy_match" in contents for contents in wanted)


def start_urls(task: Task) -> tuple[str, ...]:
    """The pages to open before the first turn, a tab each; the first of them is in front."""
    return tuple(task.start_url.split(" |AND| "))


def call(text: str) -> Call | None:
    """The call that a text of a file stands for; None when it is no `func:`.

    Raises:
        ValueError: it calls what is not in FUNCTIONS, or with other arguments; says what is wrong.
    """
    if not text.startswith("func"):
        return None
    read = _CALL.fullmatch(text)
    if read is None:
        raise ValueError("must read func:name('argument', ...)")
    name, inside = read[1], read[2] or ""
    arguments = tuple(single or double for single, double in _QUOTED.findall(inside))
    if name not in FUNCTIONS:
        raise ValueError(f"calls {name}, but only these are known: {', '.join(FUNCTIONS)}")
    if len(arguments) != FUNCTIONS[name]:
        raise ValueError(f"must give {name} {FUNCTIONS[name]} quoted arguments")
    return Call(name, arguments)


# --- the file and its addresses ------------------------------------------------------------------


def _rows(path: Path) -> list[dict[str, Any]]:
    try:
        rows = to_well_formed(json.loads(path.read_bytes()))
    except OSError as error:
        raise ConfigError(f"cannot read the task file {path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path.name} is no JSON: {error}") from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ConfigError(f"{path.name} must be a list of tasks: [{{...}}, {{...}}]")
    return rows


def _check_addresses(
    rows: Sequence[Mapping[str, Any]], addresses: Mapping[str, str], file: str
) -> None:
    """There is an address for every site that a row names or refers to."""
    needed = {name.lower() for name in _PLACEHOLDER.findall(json.dumps(rows))}
    for index, row in enumerate(rows):
        needed.update(_fields(row, index, file).texts("sites", among=SITES))
    _check_complete(addresses, needed, file)
    for site, address in addresses.items():
        if not _is_address(address):
            raise ConfigError(f"the address of {site} must begin with http://, unlike {address!r}")


def _check_complete(addresses: Mapping[str, str], needed: Collection[str], who: str) -> None:
    missing = [site.upper() for site in SITES if site in needed and site not in addresses]
    if missing:
        variables = ", ".join(f"{site} (or WA_{site})" for site in missing)
        raise ConfigError(f"{who}: sites without an address; set {variables} to http://...")


def _is_address(text: str) -> bool:
    return text.startswith(("http://", "https://"))


# --- one task ------------------------------------------------------------------------------------


def _task(row: Mapping[str, Any], index: int, file: str) -> Task:
    fields = _fields(row, index, file)
    start_url = fields.text("start_url")
    if not all(_is_address(url) for url in start_url.split(" |AND| ")):
        fields.refuse("start_url", "must be addresses, joined by ' |AND| '")
    return Task(
        id=f"webarena/{row.get('task_id', index)}",
        suite="webarena",
        sites=tuple(fields.texts("sites", among=SITES)),
        intent=fields.text("intent"),
        start_url=start_url,
        storage_state=fields.text("storage_state", default="") or None,
        eval=_eval(fields.part("eval")) if row.get("eval") else {},
    )


def _eval(fields: _Fields) -> dict[str, Any]:
    """What the evaluators named in `eval_types` read, and nothing else."""
    types = fields.texts("eval_types", among=_EVAL_TYPES)
    spec: dict[str, Any] = {
        "eval_types": types,
        "string_note": fields.text("string_note", default=""),  # why the task cannot be done
    }
    if "string_match" in types:
        spec["reference_answers"] = _contents(fields.part("reference_answers"))
    if "url_match" in types:
        spec["reference_url"] = fields.text("reference_url")
        spec["url_note"] = fields.text("url_note", default="")
        if spec["url_note"] not in _URL_NOTES:
            fields.refuse("url_note", f"must be one of {_URL_NOTES}")
    if "program_html" in types:
        spec["program_html"] = [_target(target) for target in fields.parts("program_html")]
    return spec


def _target(fields: _Fields) -> dict[str, Any]:
    """A page, a place on it, and what must stand there."""
    url, locator = fields.text("url"), fields.text("locator", default="").strip()
    for name, text in (("url", url), ("locator", locator)):
        try:
            call(text)
        except ValueError as error:
            fields.refuse(name, str(error))
    if not (url == "last" or url.startswith("func:") or _is_address(url)):
        fields.refuse("url", "must be 'last', func:... or an address")
    if locator and not locator.startswith(("func:", *_LOCATORS)):
        fields.refuse("locator", f"must be empty or begin with func:, {' or '.join(_LOCATORS)}")
    return {
        "url": url,
        "locator": locator,
        "prep_actions": fields.texts("prep_actions", default=()),
        "required_contents": _contents(fields.part("required_contents")),
    }


def _contents(fields: _Fields) -> dict[str, Any]:
    """What a text is held against, by how it is compared."""
    given = {name: value for name, value in fields.values.items() if value}
    unknown = [name for name in given if name not in _CONTENTS]
    if unknown:
        fields.refuse(unknown[0], f"must be replaced by {' or '.join(_CONTENTS)}")
    if not given:
        fields.refuse("exact_match", f"must be given, or {' or '.join(_CONTENTS[1:])}")
    return {
        name: fields.text(name)
        if name == "exact_match" or (name, value) == ("fuzzy_match", UNACHIEVABLE)
        else fields.texts(name)
        for name, value in given.items()
    }


# --- fields that must be right -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Fields:
    """One JSON object of a file, and where it stands in it."""

    values: Mapping[str, Any]
    where: str  # "tests.json, task 81: eval."

    def text(self, name: str, default: str | None = None) -> str:
        value = self._value(name, default)
        if not isinstance(value, str):
            self.refuse(name, 'must be a text: "..."')
        return value

    def texts(
        self, name: str, default: Sequence[str] | None = None, among: Collection[str] = ()
    ) -> list[str]:
        """A list of texts; a text alone is a list of one. `among`: what they may be."""
        value = self._value(name, default)
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, Sequence) or not all(isinstance(text, str) for text in texts):
            self.refuse(name, 'must be a list of texts: ["..."]')
        if among and not set(texts) <= set(among):
            self.refuse(name, f"must be among {', '.join(among)}")
        return list(texts)

    def part(self, name: str) -> _Fields:
        value = self._value(name, None)
        if not isinstance(value, dict):
            self.refuse(name, "must be an object: {...}")
        return _Fields(value, f"{self.where}{name}.")

    def parts(self, name: str) -> list[_Fields]:
        value = self._value(name, None)
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            self.refuse(name, "must be a list of objects: [{...}]")
        return [_Fields(item, f"{self.where}{name}[{i}].") for i, item in enumerate(value)]

    def refuse(self, name: str, reason: str) -> NoReturn:
        found = reprlib.repr(self.values.get(name))
        raise ConfigError(f"{self.where}{name} {reason}; it is {found}")

    def _value(self, name: str, default: Iterable[str] | None) -> Any:
        """The field, or its default where it is empty; a field without default must be there."""
        value = self.values.get(name) or default
        if value is None:
            self.refuse(name, "must be given")
        return value


def _fields(row: Mapping[str, Any], index: int, file: str) -> _Fields:
    return _Fields(row, f"{file}, task {row.get('task_id', index)}: ")
