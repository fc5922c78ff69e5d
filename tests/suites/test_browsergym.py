"""Tests of the BrowserGym suite: action and observation conversion, the process, live episodes.

The live tests need an interpreter with BrowserGym: $WEBAGENT_BROWSERGYM_PYTHON, or this one.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from webagent_jax.config import ConfigError
from webagent_jax.local_site import StaticSite
from webagent_jax.suites.browsergym import BrowserGym, page
from webagent_jax.suites.browsergym.process import BrowserGymProcess
from webagent_jax.types import Action, ActionKind, InfraError, Task

PYTHON = os.environ.get("WEBAGENT_BROWSERGYM_PYTHON", "")
FAST_OPTIONS = {"slow_mo": 0, "pre_observation_delay": 0.05}
LIVE_MARKS = [
    pytest.mark.browser,
    pytest.mark.skipif(
        not PYTHON and importlib.util.find_spec("browsergym") is None,
        reason="BrowserGym is not installed: docs/browsergym.md",
    ),
]


# --- actions --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "call"),
    [
        (Action(ActionKind.CLICK, "a5"), "click('a5')"),
        (Action(ActionKind.RIGHT_CLICK, "a5"), "click('a5', button='right')"),
        (Action(ActionKind.TYPE, "5", "it's"), "fill('5', \"it's\", True)"),
        (Action(ActionKind.SEARCH, "5", "tea"), "fill('5', 'tea')\npress('5', 'Enter')"),
        (Action(ActionKind.HOVER, "5"), "hover('5')"),
        (Action(ActionKind.SELECT, "5", "Peru"), "select_option('5', 'Peru')"),
        (Action(ActionKind.PRESS_ENTER), "keyboard_press('Enter')"),
        (Action(ActionKind.PRESS_ENTER, "5"), "press('5', 'Enter')"),
        (Action(ActionKind.PRESS, None, "Control+a"), "keyboard_press('Control+a')"),
        (Action(ActionKind.PRESS, "5", "Tab"), "press('5', 'Tab')"),
        (Action(ActionKind.SCROLL_DOWN), "scroll(0, 480)"),
        (Action(ActionKind.SCROLL_UP, "5"), "hover('5')\nscroll(0, -480)"),
        (Action(ActionKind.SWITCH_TAB, None, " 1 "), "tab_focus(1)"),
        (Action(ActionKind.SWITCH_TAB, None, "one"), "tab_focus('one')"),
        (Action(ActionKind.WAIT), "noop(1000)"),
        (Action(ActionKind.GO_BACK), "go_back()"),
        (Action(ActionKind.GO_FORWARD), "go_forward()"),
        (Action(ActionKind.GOTO, None, "http://a:1/"), "goto('http://a:1/')"),
        (Action(ActionKind.EXIT, None, None), "send_msg_to_user('')"),
        (Action(ActionKind.EXIT, None, "a\n'); b('"), "send_msg_to_user(\"a\\n'); b('\")"),
    ],
)
def test_actions_convert_to_browsergym_calls(action: Action, call: str) -> None:
    assert page.to_browsergym_action(action) == call


def test_every_action_kind_converts() -> None:
    for kind in ActionKind:
        assert page.to_browsergym_action(Action(kind, "1", "2")).endswith(")")


# --- observations ---------------------------------------------------------------------------------


def make_node(
    key: int, role: str, name: str = "", *children: int, **overrides: Any
) -> dict[str, Any]:
    defaults = {"bid": str(key), "value": "", "state": {}}
    if role in ("StaticText", "RootWebArea"):
        defaults["bid"] = None
    fields = {"key": str(key), "role": role, "name": name, "children": [str(c) for c in children]}
    return defaults | fields | overrides


def make_obs(*nodes: dict[str, Any], **overrides: Any) -> dict[str, Any]:
    defaults = {"nodes": list(nodes), "properties": {}, "url": "http://a:1/", "error": ""}
    return defaults | {"tabs": ["Shop"], "front": 0} | overrides


FORM = make_obs(
    make_node(0, "RootWebArea", "Shop", 1, 5, 7, 9, 14, 15, 19, 20),
    make_node(1, "LabelText", "", 2, 3),
    make_node(2, "StaticText", "Username"),
    make_node(3, "textbox", "Username", value="karrie"),
    make_node(5, "heading", "Enter your details", 6),
    make_node(6, "StaticText", "Enter your details"),
    make_node(7, "checkbox", "Remember me", state={"checked": "true"}),
    make_node(9, "combobox", "Country", 10, value="Peru"),
    make_node(10, "MenuListPopup", "", 11, 12),
    make_node(11, "option", "Chile"),
    make_node(12, "option", "Peru"),
    make_node(14, "combobox", "City", state={"editable": "plaintext"}),
    make_node(15, "generic", "", 16, 17),
    make_node(16, "StaticText", "Open"),
    make_node(17, "generic", "", 18),
    make_node(18, "StaticText", "me"),
    make_node(19, "button", "", 16, state={"disabled": True}),
    make_node(20, "image", "a cat"),
    properties={"15": {"set_of_marks": True, "bbox": [1.0, 2.0, 3.0, 4.0]}, "14": {"bbox": None}},
)


def test_accessibility_tree_renders_as_page_text() -> None:
    observation = page.from_browsergym_obs(FORM, 10_000)
    assert observation.text.splitlines() == [
        "textbox Username [3] = karrie",
        "Enter your details",
        "checkbox on Remember me [7]",
        "select Country [9] = Peru (Chile, Peru)",
        "textbox City [14]",
        "item Open me [15]",
        "button Open [19] disabled",
        "image a cat",
    ]
    assert observation.elements["15"].box == (1.0, 2.0, 3.0, 4.0)
    assert (observation.title, observation.url, observation.error, observation.truncated) == (
        "Shop",
        "http://a:1/",
        None,
        False,
    )


def test_label_names_next_field() -> None:
    tree = make_obs(
        make_node(0, "RootWebArea", "", 1, 3, 4),
        make_node(1, "LabelText", "", 2),
        make_node(2, "StaticText", "Username"),
        make_node(3, "textbox"),
        make_node(4, "textbox"),
    )
    text = page.from_browsergym_obs(tree, 1_000).text
    assert text.splitlines() == ["textbox Username [3]", "textbox [4]"]


def test_table_row_renders_as_one_line() -> None:
    tree = make_obs(
        make_node(0, "RootWebArea", "", 1, 6),
        make_node(1, "row", "", 2, 4),
        make_node(2, "cell", "Gender", 3),
        make_node(3, "StaticText", "Gender"),
        make_node(4, "cell", "", 5),
        make_node(5, "StaticText", "Male"),
        make_node(6, "row", "", 7, 9),
        make_node(7, "cell", "Edit", 8),
        make_node(8, "button", "Edit"),
        make_node(9, "cell", "", 10),
        make_node(10, "StaticText", "it"),
    )
    assert page.from_browsergym_obs(tree, 1_000).text.splitlines() == [
        "Gender | Male",
        "button Edit [8]",
        "it",
    ]


def test_empty_cells_keep_their_columns() -> None:
    names = ("SSO", "", "yes", "", "")
    cells = [make_node(10 + k, "cell", name) for k, name in enumerate(names)]
    tree = make_obs(
        make_node(0, "RootWebArea", "", 1, 2, 3, 4),
        make_node(1, "row", "", *range(10, 15)),
        make_node(2, "row", "", 11, 11, 10),
        make_node(3, "row", "", 13, 14),
        make_node(4, "row", "", 10, 5, 12),
        make_node(5, "LineBreak"),
        *cells,
    )
    assert page.from_browsergym_obs(tree, 1_000).text.splitlines() == [
        "SSO | | yes",
        "| | SSO",
        "SSO | yes",
    ]


def test_long_page_is_truncated_at_line() -> None:
    observation = page.from_browsergym_obs(FORM, 60)
    assert observation.text.splitlines()[:2] == [
        "textbox Username [3] = karrie",
        "Enter your details",
    ]
    assert observation.truncated
    assert "left out" in observation.text
    assert set(observation.elements) == {"3"}


def test_content_above_viewport_is_truncated_first() -> None:
    properties = {"3": {"bbox": [0, -50, 9, 9]}}
    observation = page.from_browsergym_obs(FORM | {"properties": properties}, 60)
    assert "Username" not in observation.text


def test_observation_contains_errors_and_tabs() -> None:
    tree = make_obs(FORM["nodes"][0], tabs=["A", "B"], front=1, error="TimeoutError: no\nCall log:")
    observation = page.from_browsergym_obs(tree, 1_000)
    assert observation.error == "TimeoutError: no"
    assert observation.text.splitlines() == ["[tab 0] A", "[tab 1, open] B"]
    assert observation.title == "B"


def test_deep_tree_renders() -> None:
    nodes = [make_node(k, "generic", "", k + 1) for k in range(5_000)]
    tree = make_obs(
        *nodes, make_node(5_000, "button", "Ok"), properties={"0": {"set_of_marks": True}}
    )
    assert page.from_browsergym_obs(tree, 100).text == "button Ok [5000]"


# --- process --------------------------------------------------------------------------------------

# Packages in place of BrowserGym, with the environment browsergym/fake.counter: a page with a text
# field whose value is the last action. Actions with "good" are rewarded; the third step ends it.
FAKE_PACKAGES = {
    "__init__.py": "",
    "core/__init__.py": "",
    "core/env.py": "class Chat:\n    pass\n",
    "core/action/__init__.py": "",
    "core/action/highlevel.py": """
class HighLevelActionSet:
    def __init__(self, subsets, multiaction):
        assert multiaction

    def to_python_code(self, action):
        return f"code of {action}"
""",
    "fake/__init__.py": """
import gymnasium
import numpy
import browsergym.core.env


class Counter(gymnasium.Env):
    observation_space = action_space = gymnasium.spaces.Discrete(1)

    def __init__(self, action_mapping, **options):
        self.to_code, self.options, self.num_steps = action_mapping, options, 0
        self.chat = browsergym.core.env.Chat(headless=True)

    def reset(self, seed=None, options=None):
        self.chat.add_message("assistant", "hello")
        self.chat.add_message("info", "started")
        goal = f"seed {seed}, color {self.options['color']}, messages {self.chat.messages}"
        return self.observe("first\\nbutton Delete [9]") | {"goal": goal}, {}

    def step(self, action):
        self.num_steps += 1
        if "bad" in action:
            raise ValueError("no such element")
        reward = numpy.float64(0.5 * ("good" in action))
        return self.observe(self.to_code(action)), reward, False, self.num_steps == 3, {}

    def observe(self, value):
        root = {"nodeId": "0", "role": {"value": "RootWebArea"}, "childIds": ["1"]}
        field = {
            "nodeId": "1",
            "browsergym_id": "a5",
            "role": {"value": "textbox"},
            "name": {"value": "Note"},
            "value": {"value": value},
            "properties": [{"name": "disabled", "value": {"value": True}}],
            "childIds": [],
        }
        return {
            "axtree_object": {"nodes": [root, field]},
            "extra_element_properties": {"a5": {"bbox": [1.0, 2.0, 3.0, 4.0]}},
            "url": "http://a:1/",
            "open_pages_titles": ("A", "B"),
            "active_page_index": numpy.array([1]),
            "last_action_error": "",
            "screenshot": numpy.zeros((8, 8, 3), numpy.uint8),
        }


gymnasium.register("browsergym/fake.counter", Counter)
""",
}


@pytest.fixture
def fake_python(tmp_path: Path) -> str:
    """Return the path of an interpreter that has FAKE_PACKAGES instead of BrowserGym."""
    for name, text in FAKE_PACKAGES.items():
        path = tmp_path / "browsergym" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    script.chmod(0o755)
    return str(script)


def test_worker_runs_episode(fake_python: str) -> None:
    suite = BrowserGym(
        ["browsergym/fake.counter"], origins=["a:1"], python=fake_python, options={"color": "red"}
    )
    for _ in range(2):  # the second episode is in the same process
        environment = suite.make_env(suite.task("browsergym/fake.counter", "train", 7))
        start = environment.reset()
        messages = [{"role": "assistant", "message": "hello"}]
        assert start.intent == f"seed 7, color red, messages {messages}"
        assert start.observation.text.splitlines() == [
            "[tab 0] A",
            "[tab 1, open] B",
            "textbox Note [a5] = first button Delete [9] disabled",
        ]
        assert start.observation.elements["a5"].box == (1.0, 2.0, 3.0, 4.0)
        step = environment.step(Action(ActionKind.TYPE, "a5", "good"))
        assert step.observation.elements["a5"].value == "code of fill('a5', 'good', True)"
        assert not step.terminated
        assert environment.compute_reward("other") == 0.0
        assert environment.screenshot().startswith(b"\xff\xd8")
        assert environment.step(Action(ActionKind.TYPE, "a5", "good")).terminated
        assert environment.compute_reward(None) == 1.0
        environment.close()
        assert len(suite._idle) == 1
    suite.close()


def test_exception_of_task_leaves_worker_running(fake_python: str) -> None:
    worker = BrowserGymProcess(fake_python)
    names = ["browsergym/fake.counter", "browsergym/fake.other", "browsergym/missing.page"]
    assert worker.call("unknown", 60.0, ids=names) == names[1:]
    worker.call("reset", 60.0, id=names[0], seed=0, options={"color": "red"})
    with pytest.raises(InfraError, match="BrowserGym failed: ValueError: no such element"):
        worker.call("step", 60.0, action="bad")
    assert worker.call("step", 60.0, action="good")["reward"] == 0.5
    worker.end()


def test_interpreter_without_browsergym_raises_error(tmp_path: Path) -> None:
    script = tmp_path / "python"
    script.write_text(f"#!/bin/sh\nexec {sys.executable} -S -c 'import no_such_thing'\n")
    script.chmod(0o755)
    for python, message in ((str(script), "no_such_thing"), ("/no/such/python", "does not start")):
        with pytest.raises(ConfigError, match=message) as error:
            BrowserGym(["browsergym/openended"], origins=[], python=python)
        assert "pip install" in str(error.value)


def test_unresponsive_process_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\nexec sleep 30\n")
    script.chmod(0o755)
    worker = BrowserGymProcess(str(script))
    with pytest.raises(InfraError, match=r"0\.1 s"):
        worker.call("start", 0.1)
    assert worker._process.returncode is not None
    with pytest.raises(InfraError, match="has ended"):
        worker.call("start", 0.1)


def test_lone_surrogate_in_process_reply_is_replaced(tmp_path: Path) -> None:
    script = tmp_path / "python"
    script.write_text(
        f"""#!{sys.executable}
import json, sys
from multiprocessing.connection import Connection
pipe = Connection(int(sys.argv[2]))
pipe.recv_bytes()
pipe.send_bytes(json.dumps({{"got": {{"goal": "Buy \\ud83d"}}}}).encode())
"""
    )
    script.chmod(0o755)
    worker = BrowserGymProcess(str(script))
    assert worker.call("start", 60.0) == {"goal": "Buy \ufffd"}
    worker.end()


def write_worker(folder: Path, response: str) -> str:
    """Write an interpreter that gives every request the same response, and its pid to a file."""
    script = folder / "python"
    script.write_text(
        f"""#!{sys.executable}
import os, sys
from multiprocessing.connection import Connection
open({str(folder / "pid")!r}, "w").write(str(os.getpid()))
pipe = Connection(int(sys.argv[2]))
while True:
    pipe.recv_bytes()
    pipe.send_bytes({response.encode()!r})
"""
    )
    script.chmod(0o755)
    return str(script)


def test_environment_closed_after_the_suite_ends_its_process(tmp_path: Path) -> None:
    suite = BrowserGym(["a"], origins=[], python=write_worker(tmp_path, '{"got": []}'))
    environment = suite.make_env(suite.tasks("train")[0])
    suite.close()
    environment.close()
    assert not suite._idle
    assert not Path("/proc", (tmp_path / "pid").read_text()).exists()


@pytest.mark.parametrize(
    ("value", "url"),
    [
        (" cart?page=2 ", "http://a:1/shop/cart?page=2"),
        ("/", "http://a:1/"),
        ("http://a:1/x", "http://a:1/x"),
        ("http://[", None),
        ("//b:1/", None),
    ],
)
def test_address_refers_to_current_page(tmp_path: Path, value: str, url: str | None) -> None:
    script = tmp_path / "python"
    script.write_text(
        f"""#!{sys.executable}
import json, sys
from multiprocessing.connection import Connection
pipe = Connection(int(sys.argv[2]))
while True:
    method, arguments = json.loads(pipe.recv_bytes())
    # The error of an observation is the action.
    page = {make_obs(make_node(0, "RootWebArea"), url="http://a:1/shop/list")!r}
    page = page | {{"error": arguments.get("action", "")}}
    result = {{"goal": "Buy.", "page": page, "reward": 0.0, "done": False}}
    pipe.send_bytes(json.dumps({{"got": [] if method == "unknown" else result}}).encode())
"""
    )
    script.chmod(0o755)
    suite = BrowserGym(["a"], origins=["a:1"], python=str(script))
    environment = suite.make_env(suite.tasks("train")[0])
    environment.reset()
    error = environment.step(Action(ActionKind.GOTO, value=value)).observation.error or ""
    assert error == f"goto({url!r})" if url else "origins allowed" in error
    environment.close()
    suite.close()


def test_repeated_id_counts_once(tmp_path: Path) -> None:
    python = write_worker(tmp_path, '{"got": []}')
    suite = BrowserGym(["b", "a", "b"], origins=[], python=python)
    assert suite.task_names("test") == ("b", "a")
    suite.close()


@pytest.mark.parametrize("response", ['{"error": "broken"}', '{"got": ["a"]}'])
def test_failed_check_of_tasks_ends_the_process(tmp_path: Path, response: str) -> None:
    with pytest.raises(ConfigError, match="install"):
        BrowserGym(["a"], origins=[], python=write_worker(tmp_path, response))
    assert not Path("/proc", (tmp_path / "pid").read_text()).exists()


# --- live -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site() -> Iterator[StaticSite]:
    from webagent_jax.suites.miniwob import _html_folder

    with StaticSite(_html_folder()) as site:
        yield site


@pytest.fixture
def suite(site: StaticSite, monkeypatch: pytest.MonkeyPatch) -> Iterator[BrowserGym]:
    monkeypatch.setenv("MINIWOB_URL", f"{site.url}/miniwob/")
    ids = [f"browsergym/miniwob.{name}" for name in ("click-button-sequence", "choose-list")]
    suite = BrowserGym(ids, origins=[site.address], python=PYTHON, options=FAST_OPTIONS)
    yield suite
    suite.close()


def make_task(suite: BrowserGym, name: str) -> Task:
    return suite.task(f"browsergym/miniwob.{name}", "train", 0)


class TestLive:
    pytestmark = LIVE_MARKS

    def test_unknown_task_id_raises_error(self) -> None:
        with pytest.raises(ConfigError, match=r"miniwob\.no-such-page"):
            BrowserGym(["browsergym/miniwob.no-such-page"], origins=[], python=PYTHON)

    def test_reward_comes_from_validate(self, suite: BrowserGym) -> None:
        environment = suite.make_env(make_task(suite, "click-button-sequence"))
        start = environment.reset()
        assert "ONE" in start.intent
        ids = {e.name: i for i, e in start.observation.elements.items()}
        invalid_step = environment.step(Action(ActionKind.CLICK, "9999"))
        assert "9999" in str(invalid_step.observation.error)
        assert not environment.step(Action(ActionKind.CLICK, ids["ONE"])).terminated
        assert environment.step(Action(ActionKind.CLICK, ids["TWO"])).terminated
        assert environment.compute_reward(None) == 1.0
        assert environment.screenshot().startswith(b"\xff\xd8")
        environment.close()

    def test_wrong_choice_scores_zero_and_process_is_reused(self, suite: BrowserGym) -> None:
        for _ in range(2):
            environment = suite.make_env(make_task(suite, "choose-list"))
            start = environment.reset()
            ids_by_kind = {e.kind: i for i, e in start.observation.elements.items()}
            options = start.observation.text.partition("(")[2].partition(")")[0].split(", ")
            wrong_option = next(option for option in options if option not in start.intent)
            step = environment.step(Action(ActionKind.SELECT, ids_by_kind["select"], wrong_option))
            assert step.observation.elements[ids_by_kind["select"]].value == wrong_option
            assert environment.step(Action(ActionKind.CLICK, ids_by_kind["button"])).terminated
            assert environment.compute_reward(None) == 0.0
            environment.close()
        assert len(suite._idle) == 1

    def test_other_origins_are_blocked(self, suite: BrowserGym, tmp_path: Path) -> None:
        (tmp_path / "index.html").write_text("secret")
        with StaticSite(tmp_path) as other_site:
            environment = suite.make_env(make_task(suite, "choose-list"))
            environment.reset()
            step = environment.step(Action(ActionKind.GOTO, value=f"{other_site.url}/index.html"))
            assert "origins allowed" in str(step.observation.error)
            step = environment.step(Action(ActionKind.GOTO, value="file:///etc/hostname"))
            assert "origins allowed" in str(step.observation.error)
            environment.close()

    def test_killed_process_raises_error_and_ends_browser(self, suite: BrowserGym) -> None:
        environment = suite.make_env(make_task(suite, "choose-list"))
        environment.reset()
        worker = environment._worker
        assert worker
        pids = find_descendants(worker._process.pid)
        assert len(pids) > 2
        worker._process.kill()
        with pytest.raises(InfraError, match="ended"):
            environment.step(Action(ActionKind.WAIT))
        environment.close()
        assert not suite._idle
        deadline = time.monotonic() + 20
        while any(Path(f"/proc/{pid}/exe").exists() for pid in pids):
            assert time.monotonic() < deadline, "a browser outlives its process"
            time.sleep(0.1)


def find_descendants(root: int) -> set[int]:
    stats = (p.read_text().rpartition(")")[2].split() for p in Path("/proc").glob("[0-9]*/stat"))
    pids = [int(p.parent.name) for p in Path("/proc").glob("[0-9]*/stat")]
    parents = dict(zip(pids, (int(fields[1]) for fields in stats), strict=False))
    family = {root}
    while children := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= children
    return family
