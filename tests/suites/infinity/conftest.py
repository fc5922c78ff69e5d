"""Checkouts of WebArena-Infinity for the tests: a small one in a folder, and the real one.

The real one is found at $WEBAGENT_INFINITY, or in the folder `shared` next to the repository.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from webagent_jax.browser import BrowserPool
from webagent_jax.config import BrowserConfig, InfinityConfig, ObservationFormat
from webagent_jax.suites.infinity import Infinity, catalog
from webagent_jax.suites.infinity.exclusions import AUDITED_APPS

SHARED = Path(__file__).parents[4] / "shared" / "third_party" / "webarena-infinity"

# An app with the protocol of the real ones. It inserts a note as HTML and stores its state in the
# browser: the note and the number of clicks on a button. With `var`, frames can reach both.
NOTES_PAGE = """<!doctype html><title>Notes</title><link rel=stylesheet href=css/styles.css>
<input aria-label=Note><button id=add>Add</button><button id=count>Count</button><div id=note></div>
<script src=js/app.js></script>"""
NOTES_SCRIPT = """
const stored = localStorage.getItem("state");
var state = stored ? JSON.parse(stored) : { note: "", count: 0, date: new Date().toISOString() };
var push = () => {
  localStorage.setItem("state", JSON.stringify(state));
  fetch("/api/state", { method: "PUT", body: JSON.stringify(state) });
};
const render = () => { document.getElementById("note").innerHTML = state.note; push(); };
document.getElementById("add").onclick = () => {
  state.note = document.querySelector("input").value;
  render();
};
document.getElementById("count").onclick = () => { state.count += 1; render(); };
new EventSource("/api/events");
render();
"""


def verifier(condition: str) -> str:
    """Return the code of a verifier of the app `notes`."""
    return f"""
import requests

def verify(server_url):
    state = requests.get(f"{{server_url}}/api/state").json()
    return {condition}, "the verdict"
"""


@pytest.fixture(autouse=True)
def test_apps_are_audited(monkeypatch: pytest.MonkeyPatch) -> None:
    apps = (*AUDITED_APPS, "calendar", "mail", "notes")
    monkeypatch.setattr(catalog, "AUDITED_APPS", apps)


@pytest.fixture
def small_checkout(tmp_path: Path) -> Path:
    """Return a checkout with the app `notes`, which has two real tasks and one function task."""
    folder = tmp_path / "apps" / "notes"
    tasks = {
        "real-tasks": [
            {"id": "task_e1", "difficulty": "easy", "instruction": "Count to two."},
            {"id": "task_h1", "difficulty": "hard", "instruction": "Add the note 'tea'."},
        ],
        "function-tasks": [{"id": "task_1", "instruction": "Count to one."}],
    }
    conditions = {
        "task_e1": 'state["count"] == 2',
        "task_h1": 'state["note"] == "tea"',
        "task_1": 'state["count"] == 1',
    }
    for kind, entries in tasks.items():
        for entry in entries:
            file = folder / kind / f"{entry['id']}.py"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(verifier(conditions[entry["id"]]))
            entry["verify"] = f"{kind}/{file.name}"
        (folder / f"{kind}.json").write_text(json.dumps(entries))
    for name, text in (("js/app.js", NOTES_SCRIPT), ("css/styles.css", "#note { color: red }")):
        (folder / name).parent.mkdir()
        (folder / name).write_text(text)
    (folder / "index.html").write_text(NOTES_PAGE)
    (folder / "server.py").write_text("secret = 1")
    return tmp_path


@pytest.fixture(scope="session")
def checkout() -> str:
    """Return the path of the real checkout."""
    path = os.environ.get("WEBAGENT_INFINITY", "") or str(SHARED)
    if not Path(path, "apps").is_dir():
        pytest.skip("there is no checkout of WebArena-Infinity at $WEBAGENT_INFINITY")
    return path


@contextmanager
def open_pool(observation_format: ObservationFormat = "compact") -> Iterator[BrowserPool]:
    # Long timeouts: test machines are often busy.
    config = BrowserConfig(
        observation_format=observation_format, call_timeout=60.0, navigation_timeout=60.0
    )
    with BrowserPool(config) as pool:
        yield pool


@contextmanager
def open_suite(pool: BrowserPool, path: str | Path) -> Iterator[Infinity]:
    with closing(Infinity(pool, InfinityConfig(path=str(path), test_apps=()))) as suite:
        yield suite
