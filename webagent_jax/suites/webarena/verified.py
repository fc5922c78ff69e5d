"""WebArena-Verified: its tasks, the two files that it reads, and its scorer.

The package `webarena-verified` (ServiceNow, Apache-2.0) has exact requirements, so it is installed
in a Python environment of its own and never imported here. `score_verified.py` runs there. Tasks
are read from that installation; no label is part of this repository.

A task is scored from the response of the agent and the requests of its browser, without a judge.
Hattami et al. 2025, WebArena Verified: Reliable Evaluation for Web Agents.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from webagent_jax.config import ConfigError, WebArenaConfig
from webagent_jax.suites import task_file
from webagent_jax.types import InfraError, Task
from webagent_jax.unicode import to_well_formed

Json = dict[str, Any]

EVAL_TYPE = "verified"  # value of `eval_types` of these tasks
RESPONSE_FILE, NETWORK_FILE = "agent_response.json", "network.har"
SITES_FILE, RESULT_FILE = "run_config.json", "eval_result.json"
"""Files that the command `webarena-verified eval-tasks` reads for a task; it writes the last."""

_LITE_TASK_IDS = """
4 7 15 20 23 27 33 37 43 44 48 56 58 65 69 71 75 77 82 88 93 95 96 97 98 103 109 115 117 118 123
125 127 131 135 139 144 149 155 156 157 162 167 169 173 182 190 196 202 205 211 215 220 221 225
227 235 236 240 247 250 254 258 259 268 270 276 283 285 287 288 296 300 311 313 318 321 324 333
335 348 349 354 357 361 367 368 369 374 376 381 382 383 384 386 387 392 401 404 415 419 423 426
431 440 448 454 458 464 466 470 476 485 488 491 497 505 506 509 514 516 521 524 528 534 538 548
566 567 574 577 582 599 601 605 612 619 626 631 641 645 652 657 668 673 678 682 686 693 704 710
714 720 729 733 741 745 748 760 762 768 791 798 809 811
"""

LITE_TASK_IDS = tuple(int(number) for number in _LITE_TASK_IDS.split())
"""Number in WebArena of each task of WebArena-Lite's test split, by its number there."""

IMPOSSIBLE_TASKS = (699, 700, 811)
"""Tasks that version 1.2.3 fails for every episode: their labels raise an error in its scorer."""

FREE_TASKS = (356, 757, 758, 761, 762, 763, 764, 765, 766, 767)
"""Tasks that version 1.2.3 passes for an agent that exits on the start page with status SUCCESS."""

_PROGRAM = Path(__file__).with_name("score_verified.py")
_COMMAND = "webarena-verified"
_VERSION = "1.2.3"  # version that this module was written for
_TIMEOUT = 120.0  # seconds for the start of the program
_TIMEOUT_PER_EPISODE = 10.0  # seconds

_RETRIEVE, _MUTATE = "RETRIEVE", "MUTATE"
_SUCCESS, _UNKNOWN_ERROR = "SUCCESS", "UNKNOWN_ERROR"
_NOT_FOUND, _NOT_ALLOWED = "NOT_FOUND_ERROR", "ACTION_NOT_ALLOWED_ERROR"
_STATUS = re.compile(
    rf"({_SUCCESS}|{_UNKNOWN_ERROR}|{_NOT_FOUND}|{_NOT_ALLOWED}"
    r"|PERMISSION_DENIED_ERROR|DATA_VALIDATION_ERROR)\b[:\s]*",
)
_LIST_ITEM_TYPES = ("string", "number", "currency", "location-name", "url")
_FENCE = re.compile(r"```(?:json)?\s*\n?(.*?)\n?```", re.DOTALL)  # as in the package
# Separators of a list in plain text, the strongest first: items may contain weaker ones.
_SEPARATORS = tuple(map(re.compile, (r"[;,]?\s*\n", r";", r",\s+")))


# --- installation and tasks ----------------------------------------------------------------------


@dataclass(frozen=True)
class Installation:
    """Python environment that contains the package."""

    python: str  # path of its interpreter
    assets: Path  # folder with the data files of the package
    version: str


def find_installation(python: str) -> Installation:
    """Return the installation of an interpreter, or that of `webarena-verified` on the PATH.

    Args:
        python: path of the interpreter; empty to search the PATH.

    Raises:
        ConfigError: there is none, or the interpreter does not have the package.
    """
    interpreter = python or _python_of_command()
    try:
        process = subprocess.run(
            [interpreter, "-I", str(_PROGRAM), "--installation"],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
            check=True,
        )
        return Installation(
            interpreter, **_installation_fields(json.loads(process.stdout.splitlines()[-1]))
        )
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        raise ConfigError(
            f"{interpreter or 'this machine'} has no package {_COMMAND}: create an environment with"
            f" python -m venv verified-venv && verified-venv/bin/pip install {_COMMAND}=={_VERSION}"
            "\nand set --config.suite.webarena.verified_python=verified-venv/bin/python"
        ) from error


def _python_of_command() -> str:
    """Return the interpreter next to the command on the PATH; empty without one."""
    command = shutil.which(_COMMAND)
    return str(Path(command).resolve().with_name("python")) if command else ""


def _installation_fields(record: Mapping[str, str]) -> Json:
    return {"assets": Path(record["assets"]), "version": record["version"]}


def read_tasks(config: WebArenaConfig) -> tuple[Task, ...]:
    """Return the tasks of `config.verified_split`, with placeholder addresses.

    Raises:
        ConfigError: the package is not installed, or its data cannot be read.
    """
    installation = find_installation(config.verified_python)
    folder = installation.assets / "dataset"
    try:
        rows = {row["task_id"]: row for row in _read_json(folder / "webarena-verified.json")}
        hard = _read_json(folder / "subsets" / "webarena-verified-hard.json")["task_ids"]
        # Only the original file names the browser state of each task.
        states = {
            row["task_id"]: row["storage_state"] for row in _read_json(folder / "test.raw.json")
        }
        splits = {"verified": rows, "hard": hard, "lite-verified": LITE_TASK_IDS}
        return tuple(
            make_task(rows[number], states.get(number)) for number in splits[config.verified_split]
        )
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ConfigError(
            f"cannot read the tasks of {_COMMAND} {installation.version} in {folder} ({error!r}): "
            f"install version {_VERSION}"
        ) from error


def _read_json(path: Path) -> Any:
    return json.loads(path.read_bytes())


def make_task(row: Mapping[str, Any], storage_state: str | None = None) -> Task:
    """Return a task of the package's data file.

    Its `eval` names the label, without the expected answer, which only the package reads.

    Args:
        row: entry of the file.
        storage_state: browser state in WebArena's original file.
    """
    response = next(e for e in row["eval"] if e["evaluator"] == "AgentResponseEvaluator")
    items = response["results_schema"].get("items", {})
    urls = [
        task_file.fill_placeholders(url, task_file.placeholder_addresses())
        for url in row["start_urls"]
    ]
    return Task(
        id=f"webarena/verified/{row['task_id']}",
        suite="webarena",
        sites=tuple(row["sites"]),
        intent=task_file.fill_placeholders(row["intent"], task_file.placeholder_addresses()),
        start_url=" |AND| ".join(urls),
        storage_state=storage_state,
        template=task_file.template_name(row),
        eval={
            "eval_types": [EVAL_TYPE],
            "webarena_id": row["task_id"],
            "task_type": response["expected"]["task_type"].upper(),
            "item_type": items.get("format", items.get("type", "")),
        },
    )


def is_verified(task: Task) -> bool:
    """Return whether a task is scored by WebArena-Verified."""
    return EVAL_TYPE in task.eval.get("eval_types", ())


def may_modify(task: Task) -> bool:
    """Return whether a task of WebArena-Verified requires changing its sites."""
    return task.eval["task_type"] == _MUTATE


# --- files ---------------------------------------------------------------------------------------


def agent_response(answer: str | None, task_type: str, item_type: str) -> Json:
    """Return the message of an exit action in the response format of WebArena-Verified.

    The action grammar has a message and no fields, so the other fields follow from rules
    (docs/webarena.md). A JSON object with `status` and `task_type`, or `performed_operation` as in
    older versions of the package, is returned unchanged.

    Args:
        answer: message of the exit action; None without one.
        task_type: type of the task: RETRIEVE, MUTATE or NAVIGATE.
        item_type: format or else type of a retrieved item in the package's schema.
    """
    message = (answer or "").strip()
    own_response = _parse_container(message)
    if (
        isinstance(own_response, dict)
        and "status" in own_response
        and own_response.keys() & {"task_type", "performed_operation"}
    ):
        return own_response
    status = _UNKNOWN_ERROR if answer is None else _SUCCESS
    if match := _STATUS.match(message):
        status, message = match[1], message[match.end() :]
    elif message.upper().startswith(task_file.UNACHIEVABLE):
        status = _NOT_ALLOWED if task_type == _MUTATE else _NOT_FOUND
    has_data = status == _SUCCESS and task_type == _RETRIEVE
    return {
        "task_type": task_type,
        "status": status,
        "retrieved_data": _retrieved_data(message, item_type) if has_data else None,
        "error_details": None if status == _SUCCESS else message or "no answer",
    }


def _retrieved_data(message: str, item_type: str) -> list[Any]:
    """Return the items of a message: those of a JSON list, or of a list in plain text."""
    container = _parse_container(message)
    if isinstance(container, list):
        return container
    if container is not None:
        return [container]
    # Dates, addresses and durations contain commas.
    texts = _split(message) if item_type in _LIST_ITEM_TYPES else [message]
    return [text for text in texts if text]


def _split(message: str) -> list[str]:
    """Return the texts between the strongest separators of a message."""
    message = message.rstrip(";")  # without an item after it, it separates nothing
    found = (separator for separator in _SEPARATORS if separator.search(message))
    separator = next(found, None)
    return [text.strip() for text in separator.split(message)] if separator else [message]


def _parse_container(text: str) -> dict[str, Any] | list[Any] | None:
    """Return the JSON object or list of a text or its first code block; None for anything else."""
    fence = _FENCE.search(text)
    # The whole text first: its strings may contain code blocks.
    for part in (text, fence[1]) if fence else (text,):
        try:
            value = json.loads(part)
        except (ValueError, RecursionError):  # thousands of brackets
            continue
        # JSON may escape half of a surrogate pair, which the package cannot encode.
        return to_well_formed(value) if isinstance(value, dict | list) else None
    return None


def har_file(entries: Sequence[Mapping[str, Any]]) -> bytes:
    """Return a HAR 1.2 file with these entries."""
    creator = {"name": "webagent_jax", "version": "0"}
    log = {"version": "1.2", "creator": creator, "entries": list(entries)}
    return json.dumps({"log": log}).encode()


def sites_file(addresses: Mapping[str, str], final_url: str) -> bytes:
    """Return the package's configuration of an episode, and the address where the agent stopped.

    Args:
        addresses: address of each site of the task.
        final_url: address of the page at the end, which the package does not read.
    """
    return json.dumps({"environments": _environments(addresses), "final_url": final_url}).encode()


def read_sites_file(content: bytes) -> tuple[dict[str, str], str]:
    """Return addresses and final address of `sites_file`."""
    record = json.loads(content)
    environments = record["environments"].items()
    addresses = {site.strip("_").lower(): options["urls"][0] for site, options in environments}
    return addresses, record["final_url"]


def har_entries(content: bytes) -> list[Json]:
    """Return the entries of a HAR file."""
    entries: list[Json] = json.loads(content)["log"]["entries"]
    return entries


# --- scores --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ScoreRequest:
    """Input of the scorer for one episode."""

    webarena_id: int  # number of the task in WebArena
    addresses: Mapping[str, str]  # address of each site of the task
    response: Mapping[str, Any]  # see `agent_response`
    entries: Sequence[Mapping[str, Any]] | None  # HAR entries; None if none were recorded


@dataclass(frozen=True)
class Verdict:
    """Output of the scorer for one episode."""

    score: float | None  # 0 or 1; None if the label needs a network log and there is none
    result: Mapping[str, Any]  # the package's report; empty without a score


def score(python: str, requests: Sequence[ScoreRequest]) -> list[Verdict]:
    """Return the verdicts of the package.

    An error of one of its evaluators counts as a score of 0, as in its own summaries: wrong answers
    cause most of them.

    Args:
        python: interpreter that has the package.
        requests: input for each episode.

    Raises:
        InfraError: the program fails or exceeds its time limit.
    """
    records = [
        {
            "task_id": request.webarena_id,
            "environments": _environments(request.addresses),
            "response": request.response,
            "entries": request.entries,
        }
        for request in requests
    ]
    timeout = _TIMEOUT + _TIMEOUT_PER_EPISODE * len(records)
    try:
        process = subprocess.run(
            [python, "-I", str(_PROGRAM)],
            input=json.dumps(records),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InfraError(f"the scorer of {_COMMAND} failed: {error}") from error
    # A killed process may leave a part of a line.
    verdicts = [json.loads(line) for line in process.stdout.rpartition("\n")[0].splitlines()]
    if len(verdicts) != len(records):
        raise InfraError(f"the scorer of {_COMMAND} ended: {process.stderr[-1000:].strip()}")
    return [Verdict(verdict["score"], verdict["result"]) for verdict in verdicts]


def _environments(addresses: Mapping[str, str]) -> Json:
    """Return the package's configuration of the sites of an episode."""
    return {f"__{site.upper()}__": {"urls": _spellings(url)} for site, url in addresses.items()}


def _spellings(address: str) -> list[str]:
    """Return an address, and the address without its port if browsers omit the port."""
    parts = urlsplit(address)
    if parts.port != {"http": 80, "https": 443}.get(parts.scheme):
        return [address]
    host = parts.netloc.removesuffix(f":{parts.port}")
    return [address, parts._replace(netloc=host).geturl()]
