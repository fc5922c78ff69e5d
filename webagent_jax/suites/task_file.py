"""WebArena's task files: JSON lists of tasks and their evaluators.

WebArena (812 tasks), WebArena-Lite (165 test and 647 training tasks), WebRL and WebAgent-R1 share
this format, and files of other sites can. Addresses are placeholders such as `__GITLAB__`. Loading
normalizes fields, so that evaluators read one format: a string instead of a list of strings becomes
a list of one (task 81 of WebArena-Lite, on which the released evaluator fails), and empty or null
fields are removed.

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
"""Sites of WebArena."""

UNACHIEVABLE = "N/A"
"""`fuzzy_match` of a task that cannot be done; the answer must state this or the reason."""

FUNCTIONS: Mapping[str, int] = {
    "shopping_get_latest_order_url": 0,
    "shopping_get_sku_latest_review_author": 1,
    "shopping_get_sku_latest_review_rating": 1,
    "reddit_get_post_url": 1,
    "gitlab_get_project_memeber_role": 1,  # spelled so in the files
}
"""Functions of `func:`, with their number of arguments besides the page."""

_EVAL_TYPES = ("string_match", "url_match", "program_html")
_COMPARISONS = ("exact_match", "must_include", "must_exclude", "fuzzy_match")
_URL_NOTES = ("", "EXACT", "GOLD in PRED")
_LOCATORS = ("document.", "[...document.")

_PLACEHOLDER = re.compile(r"__([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*)__")
_PLACEHOLDER_ADDRESS = re.compile(r"http://([a-z][a-z0-9_]*)\.invalid\b")
_ARGUMENT = r"""(?:__page__|'[^']*'|"[^"]*")"""
_CALL = re.compile(rf"func:(\w+)\(\s*({_ARGUMENT}(?:\s*,\s*{_ARGUMENT})*)?\s*\)\s*")
_QUOTED = re.compile(r"""'([^']*)'|"([^"]*)\"""")


@dataclass(frozen=True, slots=True)
class Call:
    """Parsed `func:` call of a file, which is never executed as code."""

    name: str
    arguments: tuple[str, ...]  # without `__page__`, which every function receives


def load(path: Path | str, addresses: Mapping[str, str]) -> tuple[Task, ...]:
    """Load the tasks of a file in its order, with the given addresses.

    The id of a row without `task_id` is its index. A row without `eval`, as in WebRL's list of
    instructions, becomes a task that can be run but not scored.

    Args:
        path: UTF-8 file.
        addresses: addresses of the sites, by name; tasks may name no other sites.

    Raises:
        ConfigError: an address is missing, or a field is not valid; the message says how to fix it.
    """
    path = Path(path)
    rows = _read_rows(path)
    # Checked for all rows first, so that the message names every missing site at once.
    _check_addresses(rows, addresses, path.name)
    normalized = {site: address.rstrip("/") for site, address in addresses.items()}
    tasks = tuple(
        _task(fill_placeholders(row, normalized), index, path.name)
        for index, row in enumerate(rows)
    )
    task_ids: set[str] = set()
    for task in tasks:
        if task.id in task_ids:
            raise ConfigError(f"{path.name} has two tasks {task.id}: give each its own task_id")
        task_ids.add(task.id)
    return tasks


def addresses_from_environment(
    environ: Mapping[str, str], required_sites: Collection[str] = ()
) -> dict[str, str]:
    """Return the addresses in the variables `WA_GITLAB` (BrowserGym) or `GITLAB` (WebArena).

    `WA_GITLAB` has precedence, because other programs may use the variable `GITLAB`.

    Args:
        environ: environment variables.
        required_sites: sites that must have an address.

    Raises:
        ConfigError: some of the `required_sites` have no address; the message names all of them.
    """
    variables = {
        site: environ.get(f"WA_{site.upper()}") or environ.get(site.upper())
        for site in dict.fromkeys((*SITES, *required_sites))
    }
    addresses = {site: address for site, address in variables.items() if address}
    _check_complete(addresses, required_sites, "the environment")
    return addresses


def placeholder_addresses(custom_sites: Iterable[str] = ()) -> dict[str, str]:
    """Return addresses for tasks whose sites are selected later, with `with_addresses`.

    Args:
        custom_sites: names of sites besides those of WebArena.
    """
    return {site: f"http://{site}.invalid" for site in (*SITES, *custom_sites)}


def with_addresses(task: Task, addresses: Mapping[str, str]) -> Task:
    """Return a task, loaded with `placeholder_addresses`, with the addresses of its sites."""
    normalized = {site: address.rstrip("/") for site, address in addresses.items()}
    return replace(
        task,
        intent=fill_placeholders(task.intent, normalized, _PLACEHOLDER_ADDRESS),
        start_url=fill_placeholders(task.start_url, normalized, _PLACEHOLDER_ADDRESS),
        eval=fill_placeholders(dict(task.eval), normalized, _PLACEHOLDER_ADDRESS),
    )


def fill_placeholders(
    value: Any, addresses: Mapping[str, str], site: re.Pattern[str] = _PLACEHOLDER
) -> Any:
    """Return `value` with the placeholders in all its texts replaced, as in the harnesses.

    Args:
        value: JSON value.
        addresses: addresses of the sites by name; placeholders of others stay.
        site: pattern of the placeholders; its first group is the name of the site, in any case.
    """
    match value:
        case str():
            # Placeholders occur in nested fields too, such as the locators of evaluators.
            return site.sub(
                lambda placeholder: addresses.get(placeholder[1].lower(), placeholder[0]), value
            )
        case list():
            return [fill_placeholders(item, addresses, site) for item in value]
        case dict():
            return {key: fill_placeholders(item, addresses, site) for key, item in value.items()}
    return value


def needs_judge(task: Task) -> bool:
    """Return whether scoring the task requires a language model as judge."""
    pages = [target["required_contents"] for target in task.eval.get("program_html", ())]
    references = [task.eval.get("reference_answers", {}), *pages]
    return any("fuzzy_match" in contents for contents in references)


def start_urls(task: Task) -> tuple[str, ...]:
    """Return the pages to open in tabs before the first turn; the first becomes active."""
    return tuple(task.start_url.split(" |AND| "))


def parse_call(text: str) -> Call | None:
    """Parse a text of a file as a `func:` call; return None for other texts.

    Raises:
        ValueError: the function is not in FUNCTIONS, or its arguments do not match.
    """
    if not text.startswith("func"):
        return None
    match = _CALL.fullmatch(text)
    if match is None:
        raise ValueError("must read func:name('argument', ...)")
    name, argument_text = match[1], match[2] or ""
    arguments = tuple(single or double for single, double in _QUOTED.findall(argument_text))
    if name not in FUNCTIONS:
        raise ValueError(f"must call one of {', '.join(FUNCTIONS)}, not {name}")
    if len(arguments) != FUNCTIONS[name]:
        raise ValueError(f"must call {name} with {FUNCTIONS[name]} quoted arguments")
    return Call(name, arguments)


# --- the file and its addresses ------------------------------------------------------------------


def _read_rows(path: Path) -> list[dict[str, Any]]:
    try:
        rows = to_well_formed(json.loads(path.read_bytes()))
    except OSError as error:
        raise ConfigError(f"cannot read the task file {path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path.name} is not JSON: {error}") from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ConfigError(f"{path.name} must be a list of tasks: [{{...}}, {{...}}]")
    return rows


def _check_addresses(
    rows: Sequence[Mapping[str, Any]], addresses: Mapping[str, str], file: str
) -> None:
    """Check that every site that a row names or refers to has a valid address."""
    # A row may refer to a site that its field `sites` omits, such as in an evaluator.
    names = dict.fromkeys((*SITES, *addresses))
    required_sites = {name.lower() for name in _PLACEHOLDER.findall(json.dumps(rows))} & set(names)
    for index, row in enumerate(rows):
        fields = _row_fields(row, index, file)
        sites = fields.texts("sites")
        if not names.keys() >= set(sites):
            fields.refuse(
                "sites",
                f"must be among {', '.join(names)}; suite.webarena.addresses=NAME=http://host:port "
                "adds a site",
            )
        required_sites.update(sites)
    _check_complete(addresses, required_sites, file)
    for site, address in addresses.items():
        if not _is_address(address):
            raise ConfigError(f"the address of {site} must begin with http://, unlike {address!r}")


def _check_complete(
    addresses: Mapping[str, str], required_sites: Collection[str], source: str
) -> None:
    missing_sites = [
        site.upper()
        for site in dict.fromkeys((*SITES, *sorted(required_sites)))
        if site in required_sites and site not in addresses
    ]
    if missing_sites:
        variables = ", ".join(f"{site} (or WA_{site})" for site in missing_sites)
        raise ConfigError(f"{source}: sites without an address; set {variables} to http://...")


def _is_address(text: str) -> bool:
    return text.startswith(("http://", "https://"))


# --- one task ------------------------------------------------------------------------------------


def _task(row: Mapping[str, Any], index: int, file: str) -> Task:
    fields = _row_fields(row, index, file)
    start_url = fields.text("start_url")
    if not all(_is_address(url) for url in start_url.split(" |AND| ")):
        fields.refuse("start_url", "must be addresses, joined by ' |AND| '")
    return Task(
        id=f"webarena/{row.get('task_id', index)}",
        suite="webarena",
        sites=tuple(fields.texts("sites")),
        intent=fields.text("intent"),
        start_url=start_url,
        storage_state=fields.text("storage_state", default="") or None,
        template=template_name(row),
        eval=_eval_spec(fields.part("eval")) | _webarena_id(row) if row.get("eval") else {},
    )


def template_name(row: Mapping[str, Any]) -> str:
    """Return the name of the template of a row; empty if the field is missing or null."""
    template_id = row.get("intent_template_id")
    return "" if template_id is None else str(template_id)


def _webarena_id(row: Mapping[str, Any]) -> dict[str, int]:
    """Return the number of the task among WebArena's 812, which all label sets refer to.

    WebArena-Lite and its successor number their tasks anew and keep the old number. A file of other
    tasks has numbers too, which mean nothing; `rescoring` also compares sites and templates.
    """
    number = row.get("old_task_id", row.get("task_id"))
    return {"webarena_id": number} if isinstance(number, int) else {}


def _eval_spec(fields: _Fields) -> dict[str, Any]:
    """Return only the fields that the evaluators in `eval_types` read."""
    types = fields.texts("eval_types", allowed_values=_EVAL_TYPES)
    spec: dict[str, Any] = {
        "eval_types": types,
        "string_note": fields.text("string_note", default=""),  # reason why it cannot be done
    }
    if "string_match" in types:
        spec["reference_answers"] = _required_contents(fields.part("reference_answers"))
    if "url_match" in types:
        spec["reference_url"] = fields.text("reference_url")
        spec["url_note"] = fields.text("url_note", default="")
        if spec["url_note"] not in _URL_NOTES:
            fields.refuse("url_note", f"must be one of {_URL_NOTES}")
    if "program_html" in types:
        spec["program_html"] = [_html_target(target) for target in fields.parts("program_html")]
    return spec


def _html_target(fields: _Fields) -> dict[str, Any]:
    """Return a target of `program_html`: page, locator, preparation and required contents."""
    url, locator = fields.text("url"), fields.text("locator", default="").strip()
    for name, text in (("url", url), ("locator", locator)):
        try:
            parse_call(text)
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
        "required_contents": _required_contents(fields.part("required_contents")),
    }


def _required_contents(fields: _Fields) -> dict[str, Any]:
    """Return the references of a text by the name of their comparison."""
    # Empty comparisons mean "not used" in the files.
    contents = {name: value for name, value in fields.values.items() if value}
    unknown = [name for name in contents if name not in _COMPARISONS]
    if unknown:
        fields.refuse(unknown[0], f"must be replaced by {' or '.join(_COMPARISONS)}")
    if not contents:
        fields.refuse("exact_match", f"must be given, or {' or '.join(_COMPARISONS[1:])}")
    return {
        # The fuzzy reference N/A is a marker, not a list of references, and stays a text.
        name: fields.text(name)
        if name == "exact_match" or (name, value) == ("fuzzy_match", UNACHIEVABLE)
        else fields.texts(name)
        for name, value in contents.items()
    }


# --- validated fields ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Fields:
    """JSON object of a file with its location."""

    values: Mapping[str, Any]
    location: str  # prefix of error messages, such as "tests.json, task 81: eval."

    def text(self, name: str, default: str | None = None) -> str:
        value = self._value(name, default)
        if not isinstance(value, str):
            self.refuse(name, 'must be a string: "..."')
        return value

    def texts(
        self, name: str, default: Sequence[str] | None = None, allowed_values: Collection[str] = ()
    ) -> list[str]:
        """Return a list of strings, each in `allowed_values` if any; a string is a list of one."""
        value = self._value(name, default)
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, Sequence) or not all(isinstance(text, str) for text in texts):
            self.refuse(name, 'must be a list of strings: ["..."]')
        if allowed_values and not set(texts) <= set(allowed_values):
            self.refuse(name, f"must be among {', '.join(allowed_values)}")
        return list(texts)

    def part(self, name: str) -> _Fields:
        value = self._value(name, None)
        if not isinstance(value, dict):
            self.refuse(name, "must be an object: {...}")
        return _Fields(value, f"{self.location}{name}.")

    def parts(self, name: str) -> list[_Fields]:
        value = self._value(name, None)
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            self.refuse(name, "must be a list of objects: [{...}]")
        return [_Fields(item, f"{self.location}{name}[{i}].") for i, item in enumerate(value)]

    def refuse(self, name: str, reason: str) -> NoReturn:
        value = reprlib.repr(self.values.get(name))
        raise ConfigError(f"{self.location}{name} {reason}; it is {value}")

    def _value(self, name: str, default: Iterable[str] | None) -> Any:
        """Return the field, or its default if the field is empty; without default it must exist."""
        # The files write unused fields as "", [] or null.
        value = self.values.get(name) or default
        if value is None:
            self.refuse(name, "must be given")
        return value


def _row_fields(row: Mapping[str, Any], index: int, file: str) -> _Fields:
    return _Fields(row, f"{file}, task {row.get('task_id', index)}: ")
