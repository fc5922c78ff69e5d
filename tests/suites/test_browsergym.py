"""BrowserGym as a suite: what crosses, on trees told by hand; and live, where it is installed.

The live tests want an interpreter with BrowserGym: $WEBAGENT_BROWSERGYM_PYTHON, else this one.
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
HASTY = {"slow_mo": 0, "pre_observation_delay": 0.05}
live = [
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
def test_every_action_has_its_call(action: Action, call: str) -> None:
    assert page.to_browsergym_action(action) == call


def test_no_kind_of_action_is_left_out() -> None:
    for kind in ActionKind:
        assert page.to_browsergym_action(Action(kind, "1", "2")).endswith(")")


# --- observations ---------------------------------------------------------------------------------


def node(key: int, role: str, name: str = "", *children: int, **more: Any) -> dict[str, Any]:
    blank = {"bid": str(key), "value": "", "state": {}}
    if role in ("StaticText", "RootWebArea"):
        blank["bid"] = None
    told = {"key": str(key), "role": role, "name": name, "children": [str(c) for c in children]}
    return blank | told | more


def told(*nodes: dict[str, Any], **more: Any) -> dict[str, Any]:
    first = {"nodes": list(nodes), "properties": {}, "url": "http://a:1/", "error": ""}
    return first | {"tabs": ["Shop"], "front": 0} | more


FORM = told(
    node(0, "RootWebArea", "Shop", 1, 5, 7, 9, 14, 15, 19, 20),
    node(1, "LabelText", "", 2, 3),
    node(2, "StaticText", "Username"),
    node(3, "textbox", "Username", value="karrie"),
    node(5, "heading", "Enter your details", 6),
    node(6, "StaticText", "Enter your details"),
    node(7, "checkbox", "Remember me", state={"checked": "true"}),
    node(9, "combobox", "Country", 10, value="Peru"),
    node(10, "MenuListPopup", "", 11, 12),
    node(11, "option", "Chile"),
    node(12, "option", "Peru"),
    node(14, "combobox", "City", state={"editable": "plaintext"}),
    node(15, "generic", "", 16, 17),
    node(16, "StaticText", "Open"),
    node(17, "generic", "", 18),
    node(18, "StaticText", "me"),
    node(19, "button", "", 16, state={"disabled": True}),
    node(20, "image", "a cat"),
    properties={"15": {"set_of_marks": True, "bbox": [1.0, 2.0, 3.0, 4.0]}, "14": {"bbox": None}},
)


def test_a_tree_is_told_as_our_own_pages_are() -> None:
    seen = page.from_browsergym_obs(FORM, 10_000)
    assert seen.text.splitlines() == [
        "textbox Username [3] = karrie",
        "Enter your details",
        "checkbox on Remember me [7]",
        "select Country [9] = Peru (Chile, Peru)",
        "textbox City [14]",
        "item Open me [15]",
        "button Open [19] disabled",
        "image a cat",
    ]
    assert seen.elements["15"].box == (1.0, 2.0, 3.0, 4.0)
    assert (seen.title, seen.url, seen.error, seen.truncated) == (
        "Shop",
        "http://a:1/",
        None,
        False,
    )


def test_a_label_names_the_field_after_it() -> None:
    tree = told(
        node(0, "RootWebArea", "", 1, 3, 4),
        node(1, "LabelText", "", 2),
        node(2, "StaticText", "Username"),
        node(3, "textbox"),
        node(4, "textbox"),
    )
    text = page.from_browsergym_obs(tree, 1_000).text
    assert text.splitlines() == ["textbox Username [3]", "textbox [4]"]


def test_a_row_of_words_is_a_line() -> None:
    tree = told(
        node(0, "RootWebArea", "", 1, 6),
        node(1, "row", "", 2, 4),
        node(2, "cell", "Gender", 3),
        node(3, "StaticText", "Gender"),
        node(4, "cell", "", 5),
        node(5, "StaticText", "Male"),
        node(6, "row", "", 7, 9),
        node(7, "cell", "Edit", 8),
        node(8, "button", "Edit"),
        node(9, "cell", "", 10),
        node(10, "StaticText", "it"),
    )
    assert page.from_browsergym_obs(tree, 1_000).text.splitlines() == [
        "Gender | Male",
        "button Edit [8]",
        "it",
    ]


def test_a_long_page_is_cut_at_a_line() -> None:
    seen = page.from_browsergym_obs(FORM, 60)
    assert seen.text.splitlines()[:2] == ["textbox Username [3] = karrie", "Enter your details"]
    assert seen.truncated
    assert "left out" in seen.text
    assert set(seen.elements) == {"3"}


def test_what_stands_above_the_viewport_is_cut_first() -> None:
    above = {"3": {"bbox": [0, -50, 9, 9]}}
    seen = page.from_browsergym_obs(FORM | {"properties": above}, 60)
    assert "Username" not in seen.text


def test_errors_and_tabs_are_told() -> None:
    several = told(FORM["nodes"][0], tabs=["A", "B"], front=1, error="TimeoutError: no\nCall log:")
    seen = page.from_browsergym_obs(several, 1_000)
    assert seen.error == "TimeoutError: no"
    assert seen.text.splitlines() == ["[tab 0] A", "[tab 1, open] B"]
    assert seen.title == "B"


def test_a_deep_page_is_told() -> None:
    nodes = [node(k, "generic", "", k + 1) for k in range(5_000)]
    tree = told(*nodes, node(5_000, "button", "Ok"), properties={"0": {"set_of_marks": True}})
    assert page.from_browsergym_obs(tree, 100).text == "button Ok [5000]"


# --- the process ----------------------------------------------------------------------------------


def test_an_interpreter_without_it_is_refused(tmp_path: Path) -> None:
    without = tmp_path / "python"
    without.write_text(f"#!/bin/sh\nexec {sys.executable} -S -c 'import no_such_thing'\n")
    without.chmod(0o755)
    for python, words in ((str(without), "no_such_thing"), ("/no/such/python", "does not start")):
        with pytest.raises(ConfigError, match=words) as told:
            BrowserGym(["browsergym/openended"], origins=[], python=python)
        assert "pip install" in str(told.value)


def test_a_process_that_is_silent_is_ended(tmp_path: Path) -> None:
    silent = tmp_path / "python"
    silent.write_text("#!/bin/sh\nexec sleep 30\n")
    silent.chmod(0o755)
    worker = BrowserGymProcess(str(silent))
    with pytest.raises(InfraError, match=r"0\.1 s"):
        worker.call("start", 0.1)
    assert worker._process.returncode is not None
    with pytest.raises(InfraError, match="has ended"):
        worker.call("start", 0.1)


def test_half_a_character_that_it_tells_is_replaced(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(
        f"""#!{sys.executable}
import json, sys
from multiprocessing.connection import Connection
pipe = Connection(int(sys.argv[2]))
pipe.recv_bytes()
pipe.send_bytes(json.dumps({{"got": {{"goal": "Buy \\ud83d"}}}}).encode())
"""
    )
    python.chmod(0o755)
    worker = BrowserGymProcess(str(python))
    assert worker.call("start", 60.0) == {"goal": "Buy \ufffd"}
    worker.end()


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
    suite = BrowserGym(ids, origins=[site.address], python=PYTHON, options=HASTY)
    yield suite
    suite.close()


def task(suite: BrowserGym, name: str) -> Task:
    return suite.task(f"browsergym/miniwob.{name}", "train", 0)


class TestLive:
    pytestmark = live

    def test_an_unknown_id_is_refused(self) -> None:
        with pytest.raises(ConfigError, match=r"miniwob\.no-such-page"):
            BrowserGym(["browsergym/miniwob.no-such-page"], origins=[], python=PYTHON)

    def test_its_validate_is_the_reward(self, suite: BrowserGym) -> None:
        environment = suite.make_env(task(suite, "click-button-sequence"))
        start = environment.reset()
        assert "ONE" in start.intent
        by_name = {e.name: i for i, e in start.observation.elements.items()}
        refused = environment.step(Action(ActionKind.CLICK, "9999"))
        assert "9999" in str(refused.observation.error)
        assert not environment.step(Action(ActionKind.CLICK, by_name["ONE"])).terminated
        assert environment.step(Action(ActionKind.CLICK, by_name["TWO"])).terminated
        assert environment.compute_reward(None) == 1.0
        assert environment.screenshot().startswith(b"\xff\xd8")
        environment.close()

    def test_wrong_is_worth_nothing_and_its_process_serves_again(self, suite: BrowserGym) -> None:
        for _ in range(2):
            environment = suite.make_env(task(suite, "choose-list"))
            start = environment.reset()
            kinds = {e.kind: i for i, e in start.observation.elements.items()}
            options = start.observation.text.partition("(")[2].partition(")")[0].split(", ")
            wrong = next(option for option in options if option not in start.intent)
            chosen = environment.step(Action(ActionKind.SELECT, kinds["select"], wrong))
            assert chosen.observation.elements[kinds["select"]].value == wrong
            assert environment.step(Action(ActionKind.CLICK, kinds["button"])).terminated
            assert environment.compute_reward(None) == 0.0
            environment.close()
        assert len(suite._idle) == 1

    def test_other_places_are_not_reached(self, suite: BrowserGym, tmp_path: Path) -> None:
        (tmp_path / "index.html").write_text("secret")
        with StaticSite(tmp_path) as other:
            environment = suite.make_env(task(suite, "choose-list"))
            environment.reset()
            step = environment.step(Action(ActionKind.GOTO, value=f"{other.url}/index.html"))
            assert "origins allowed" in str(step.observation.error)
            step = environment.step(Action(ActionKind.GOTO, value="file:///etc/hostname"))
            assert "origins allowed" in str(step.observation.error)
            environment.close()

    def test_a_killed_process_is_a_fault_and_leaves_no_browser(self, suite: BrowserGym) -> None:
        environment = suite.make_env(task(suite, "choose-list"))
        environment.reset()
        worker = environment._worker
        assert worker
        family = descendants(worker._process.pid)
        assert len(family) > 2
        worker._process.kill()
        with pytest.raises(InfraError, match="ended"):
            environment.step(Action(ActionKind.WAIT))
        environment.close()
        assert not suite._idle
        deadline = time.monotonic() + 20
        while any(Path(f"/proc/{pid}/exe").exists() for pid in family):
            assert time.monotonic() < deadline, "a browser outlives its process"
            time.sleep(0.1)


def descendants(root: int) -> set[int]:
    stats = (p.read_text().rpartition(")")[2].split() for p in Path("/proc").glob("[0-9]*/stat"))
    pids = [int(p.parent.name) for p in Path("/proc").glob("[0-9]*/stat")]
    parents = dict(zip(pids, (int(fields[1]) for fields in stats), strict=False))
    family = {root}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return family
