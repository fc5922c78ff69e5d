"""Local web server of all runs below a directory: list, reports and comparison, updated live.

The server reads the files that runs write; it never connects to a run. Building a report refreshes
the directory `report/` of its workdir, as `webagent report` does, and nothing else is written.
A page may send the prompt of a stored turn again (`resend`).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import secrets
import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from absl import logging
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from starlette.staticfiles import StaticFiles

from webagent_jax.config import ConfigError
from webagent_jax.cpu_priority import lower_priority
from webagent_jax.local_site import LOCAL_HOSTS_ONLY, is_same_origin, make_server
from webagent_jax.report import episode_pages, html, page, run_list, run_loader, training_curves
from webagent_jax.report.resend import BusyError, PromptEdit, PromptSender, TurnId
from webagent_jax.report.run_list import ListedRun
from webagent_jax.report.training_curves import Metric, SeedGroup
from webagent_jax.types import InfraError

# Minimum interval between two builds of the report of a run in progress. Builds take at most a
# fifth of the time, because the run needs the processor.
_MIN_REBUILD_SECONDS = 5.0
_MAX_BUILD_SHARE = 0.2
_FIRST_BUILD_SECONDS = 3.0  # time to wait for a first report before showing a message

_DRAWING = threading.Lock()  # matplotlib has global settings

_MAX_ERROR_CHARS = 500  # maximum length of an unexpected error
_MAX_BODY_BYTES = 4_000_000  # maximum size of a request; longer prompts fit no model

# Part of the version of each page: after a restart, browsers replace the pages that they have,
# which another version of the package may have rendered.
_SERVER_START = secrets.token_hex(8)

_STYLES = ("base.css", "summary.css", "runs.css")
_SCRIPTS = ("dom.js", "hover.js", "live.js", "runs.js")

# Another website cannot show, read or load anything of this server.
_HEADERS = {
    "Cache-Control": "no-cache",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


@dataclass(frozen=True)
class _Report:
    version: str  # version of the files that the report was built from
    text: str  # HTML
    built_time: float  # monotonic time of the end of the build
    build_seconds: float  # duration of the build

    @property
    def is_recent(self) -> bool:
        """True within the minimum interval between two builds."""
        min_age = max(_MIN_REBUILD_SECONDS, self.build_seconds / _MAX_BUILD_SHARE)
        return time.monotonic() - self.built_time < min_age


class RunViewer:
    """Viewer of the runs below a directory; pages are rebuilt when files change. Thread-safe.

    Args:
        root: directory of the runs, or the workdir of a single run.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._runs: dict[Path, ListedRun] = {}
        self._reports: dict[Path, _Report] = {}
        self._builds: dict[Path, Future[_Report]] = {}
        self._list_lock, self._report_lock = threading.Lock(), threading.Lock()
        # One thread each, at low priority, so that the runs keep their cores.
        self._executor = ThreadPoolExecutor(1, "report", initializer=lower_priority)
        self._comparisons = ThreadPoolExecutor(1, "comparison", initializer=lower_priority)

    def list_runs(self) -> list[ListedRun]:
        """Return the runs, the latest change first."""
        with self._list_lock:
            runs = {}
            for workdir in run_list.find_workdirs(self._root):
                # A run may be deleted at any time.
                with contextlib.suppress(FileNotFoundError):
                    runs[workdir] = run_list.read_run(workdir, self._root, self._runs.get(workdir))
            self._runs = runs
        return sorted(runs.values(), key=lambda listed: -listed.modified_time)

    def find(self, name: str) -> ListedRun:
        """Return the run with a name of the list.

        Raises:
            KeyError: no run has the name.
        """
        return {listed.name: listed for listed in self.list_runs()}[name]

    def list_page(self, version: str) -> str:
        """Return the HTML of the list."""
        runs = self.list_runs()
        return page.render(
            "runs.html.j2",
            styles=_STYLES,
            scripts=_SCRIPTS,
            version=version,
            root=self._root.resolve().name,
            runs=runs,
            differences=run_list.config_differences(runs),
            size=run_list.SPARKLINE_SIZE,
        )

    def report(
        self, listed: ListedRun, timeout_seconds: float = _FIRST_BUILD_SECONDS
    ) -> _Report | None:
        """Return the last report of a run, and build another one if its files have changed.

        Args:
            listed: run of the list.
            timeout_seconds: maximum time to wait for the first report.

        Returns:
            The report; None if the first one is not complete yet.

        Raises:
            OSError: a file cannot be read or written.
            ValueError: a file is not valid; the message names it.
        """
        workdir = listed.workdir
        with self._report_lock:
            self._collect_build(workdir)
            last = self._reports.get(workdir)
            is_current = last and (last.version == listed.version or last.is_recent)
            if not is_current and workdir not in self._builds:
                self._builds[workdir] = self._executor.submit(_build, listed)
            build = self._builds.get(workdir)
        if last or build is None:
            return last
        try:
            return build.result(timeout_seconds)
        except TimeoutError:
            return None

    def _collect_build(self, workdir: Path) -> None:
        """Store the report of a complete build, or raise its error once."""
        build = self._builds.get(workdir)
        if build and build.done():
            del self._builds[workdir]
            self._reports[workdir] = build.result()

    def comparison_page(self, runs: Sequence[ListedRun], version: str) -> str:
        """Return the HTML of the comparison of runs."""
        groups = training_curves.group_by_config([listed.run for listed in runs if listed.run])
        # The loader names a run by its directory; the list by its path, which is unique.
        names = {id(listed.run): listed.name for listed in runs}
        groups = [
            SeedGroup(", ".join(names[id(run)] for run in group.runs), group.runs)
            for group in groups
        ]
        paper, other = training_curves.PAPER_METRICS, training_curves.OTHER_METRICS
        curves = [
            (title, self._comparisons.submit(_all_curves, groups, phase, metrics).result())
            for title, phase, metrics in (
                ("Training with M-GRPO", "grpo", (*paper, *other)),
                ("Behavior cloning", "bc", (*other, *paper)),
            )
        ]
        return page.render(
            "compare.html.j2",
            styles=_STYLES,
            scripts=_SCRIPTS,
            version=version,
            runs=runs,
            groups=groups,
            series={names[id(run)]: i for i, group in enumerate(groups) for run in group.runs},
            differences=run_list.config_differences(runs),
            curves=curves,
        )


def make_app(root: Path, sender: PromptSender | None = None) -> Starlette:
    """Return the application that serves the runs below a directory.

    Args:
        root: directory of the runs, or the workdir of a single run.
        sender: receives the prompts that pages send; None uses the policies of the runs. The caller
            closes it.
    """
    viewer, prompt_sender = RunViewer(root), sender or PromptSender()

    def list_runs(request: Request) -> Response:
        version = _page_version([listed.name + listed.version for listed in viewer.list_runs()])
        return _page(request, version, lambda: viewer.list_page(version))

    def report(request: Request) -> Response:
        listed = _find(viewer, request.path_params["name"])
        try:
            built = viewer.report(listed)
        except (OSError, ValueError) as error:
            return _message("This run has no report", str(error), 500)
        if built is None:
            text = "The first report of a run takes a while. It opens as soon as it is complete."
            return _message("Building the report", text, 503, scripts=["reload.js"])
        return _page(request, _page_version([built.version]), lambda: built.text)

    async def report_file(request: Request) -> Response:
        listed = await run_in_threadpool(_find, viewer, request.path_params["name"])
        files = StaticFiles(directory=listed.workdir / "report", check_dir=False)
        response = await files.get_response(request.path_params["file"], request.scope)
        response.headers.update(_HEADERS)
        return response

    def compare(request: Request) -> Response:
        runs = [_find(viewer, name) for name in request.query_params.getlist("run")]
        runs = [listed for listed in runs if listed.run]
        if not runs:
            return _message("No runs to compare", "Select runs in the list.", 400)
        version = _page_version([listed.name + listed.version for listed in runs])
        return _page(request, version, lambda: viewer.comparison_page(runs, version))

    def read_prompt(request: Request) -> Response:
        def work() -> Any:
            return prompt_sender.prompt(_find(viewer, request.path_params["name"]), turn_id)

        turn_id = _turn_id(request)
        return _json_response(work)

    async def send_prompt(request: Request) -> Response:
        if not is_same_origin(request):
            return _json({"error": "the request does not come from a page of this server"}, 403)
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > _MAX_BODY_BYTES:
                text = f"the prompt exceeds {_MAX_BODY_BYTES:,} bytes: shorten it"
                return _json({"error": text}, 413)

        def work() -> Any:
            listed = _find(viewer, request.path_params["name"])
            return prompt_sender.send(listed, _turn_id(request), _prompt_edit(body))

        return await run_in_threadpool(_json_response, work)

    def not_found(request: Request, error: Exception) -> Response:
        del error
        return _message("Not found", f"There is no run or file at {request.url.path}.", 404)

    return Starlette(
        routes=[
            Route("/", list_runs),
            Route("/compare", compare),
            Route("/runs/{name:path}/report.html", report),
            Route("/runs/{name:path}/turn", read_prompt),
            Route("/runs/{name:path}/turn", send_prompt, methods=["POST"]),
            Route("/runs/{name:path}/report/{file:path}", report_file),
        ],
        exception_handlers={404: not_found},
        middleware=[LOCAL_HOSTS_ONLY],
    )


def serve_forever(root: Path, port: int, sender: PromptSender) -> None:
    """Serve the runs below a directory on 127.0.0.1 until interrupted.

    Args:
        root: directory of the runs, or the workdir of a single run.
        port: port to listen on.
        sender: receives the prompts that pages send.

    Raises:
        OSError: the port is not available.
    """
    listener = socket.create_server(("127.0.0.1", port), backlog=128)
    server = make_server(make_app(root, sender))
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(server.serve(sockets=[listener]))


def _find(viewer: RunViewer, name: str) -> ListedRun:
    try:
        return viewer.find(name)
    except KeyError:
        raise HTTPException(404) from None


def _turn_id(request: Request) -> TurnId:
    number = request.query_params.get("turn", "")
    return TurnId(
        request.query_params.get("episode", ""), int(number) if number.isdecimal() else -1
    )


def _prompt_edit(body: bytes | bytearray) -> PromptEdit:
    """Return the prompt in the body of a request.

    Raises:
        ConfigError: the body is not valid.
    """
    try:
        values = json.loads(body)
    except ValueError as error:
        raise ConfigError(f"the request is not valid JSON: {error}") from error
    if not isinstance(values, dict):
        raise ConfigError("the request is not a JSON object")
    return PromptEdit.from_json(values)


def _json_response(work: Callable[[], Any]) -> Response:
    """Return the result as JSON, or the error of the user or the policy in one line."""
    try:
        return _json(work())
    except (LookupError, HTTPException) as error:
        text = error.args[0] if isinstance(error, LookupError) else "there is no such run"
        return _json({"error": text}, 404)
    except BusyError as error:
        return _json({"error": str(error)}, 409)
    except (ConfigError, InfraError) as error:
        # Messages for a terminal have several lines.
        return _json({"error": " ".join(str(error).split())}, 400)
    # Out of memory or damaged weights, for example: the server and its other pages continue.
    except Exception as error:
        logging.exception("the policy has failed")
        text = " ".join(f"{type(error).__name__}: {error}".split())
        return _json({"error": text[:_MAX_ERROR_CHARS]}, 500)


def _json(value: Any, status: int = 200) -> Response:
    # ASCII, because a page may contain characters that UTF-8 cannot encode.
    return Response(json.dumps(value), status, _HEADERS, "application/json")


def _page(request: Request, version: str, render: Callable[[], str]) -> Response:
    """Return the page, or 304 without a body if the browser has this version."""
    headers = {**_HEADERS, "ETag": f'"{version}"'}
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    return HTMLResponse(render(), headers=headers)


def _build(listed: ListedRun) -> _Report:
    start = time.monotonic()
    run = run_loader.load_run(listed.workdir)
    # The episodes first, so that the page never refers to files that do not exist.
    episodes = episode_pages.write(listed.workdir, run.logs, run.config)
    with _DRAWING:
        text = html.render(run, episodes=episodes, version=_page_version([listed.version]))
    end = time.monotonic()
    return _Report(listed.version, text, end, end - start)


def _all_curves(
    groups: Sequence[SeedGroup], phase: str, metrics: Sequence[Metric]
) -> list[training_curves.Curve]:
    with _DRAWING:
        return training_curves.curves(groups, phase, metrics, first_required=False)


def _message(title: str, text: str, status: int, scripts: Sequence[str] = ()) -> Response:
    content = page.render(
        "message.html.j2", styles=_STYLES, scripts=("dom.js", *scripts), title=title, text=text
    )
    return HTMLResponse(content, status, _HEADERS)


def _page_version(parts: Sequence[str]) -> str:
    """Return the version of a page from those of the files of its runs."""
    return hashlib.sha256("\n".join([_SERVER_START, *parts]).encode()).hexdigest()[:16]
