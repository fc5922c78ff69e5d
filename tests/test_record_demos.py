"""Tests of recording: a simulated person with mouse and keyboard, the real recorder and suites."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from examples.my_site.config import MY_SITE
from tests.recording_progress import RecordingProgress
from webagent_jax import demos
from webagent_jax.agent import TEMPLATES, ChatTokenizer, PromptFormat, actions
from webagent_jax.browser import BrowserPool, Session, chromium
from webagent_jax.commands import record as record_command
from webagent_jax.config import ConfigError, SuiteConfig
from webagent_jax.policy import resolve_dir
from webagent_jax.record_demos import _parse_line, _refusal, record_demos
from webagent_jax.suites.site import SiteSuite, SiteTask
from webagent_jax.tracking.progress import NullProgress
from webagent_jax.types import Action, ActionKind, Element, InfraError, Observation

pytestmark = pytest.mark.browser

TIMEOUT_SECONDS = 60.0


class Person:
    """Mouse, keyboard and terminal of a person, used from a thread of their own."""

    def __init__(self, output: RecordingProgress) -> None:
        self.sessions: list[Session] = []
        self.terminal: queue.SimpleQueue = queue.SimpleQueue()
        self.output = output

    def read(self, text: str) -> None:
        """Wait until the terminal shows a text."""
        wait_until(lambda: any(text in line for line in self.output.lines), text)

    def wait_for_page(self) -> None:
        """Wait until all frames of the newest window report actions."""

        async def is_listening(page):
            script = "() => Boolean(window.__webagentRecorder?.isListening())"
            return all([await frame.evaluate(script) for frame in page.frames])

        def is_ready() -> bool:
            with contextlib.suppress(InfraError):  # the page is loading
                return bool(self.sessions) and self.sessions[-1].with_page(is_listening)
            return False

        wait_until(is_ready, "listening page")

    def click(self, selector: str, *, nth: int = 0, frame: str = "", **options) -> None:
        """Click near the upper left corner of an element, not at its center."""
        self.wait_for_page()

        async def click(page):
            document = page.frame_locator(frame) if frame else page
            box = await document.locator(selector).nth(nth).bounding_box()
            await page.mouse.click(box["x"] + 6, box["y"] + 6, **options)

        self.sessions[-1].with_page(click)

    def press(self, *keys: str) -> None:
        self.wait_for_page()

        async def press(page):
            for key in keys:
                await page.keyboard.press(key)

        self.sessions[-1].with_page(press)

    def scroll(self, pixels: int) -> None:
        """Turn the wheel once."""
        self.wait_for_page()
        self.sessions[-1].with_page(lambda page: page.mouse.wheel(0, pixels))

    def type(self, text: str) -> None:
        self.press(*text)

    def enter(self, line: str) -> None:
        """Enter a line in the terminal."""
        self.terminal.put(line)


def wait_until(condition: Callable[[], object], name: str) -> None:
    end = time.monotonic() + TIMEOUT_SECONDS
    while not condition():
        assert time.monotonic() < end, f"no {name}"
        time.sleep(0.01)


@pytest.fixture
def record(tmp_path, monkeypatch):
    """Return a function that records what `act` does as a person; it returns the terminal lines."""
    open_session = BrowserPool.session

    def run(act: Callable[[Person], None], cfg=MY_SITE) -> list[str]:
        output = RecordingProgress()
        person = Person(output)

        def session(pool, **options):
            person.sessions.append(open_session(pool, **options))
            return person.sessions[-1]

        monkeypatch.setattr(BrowserPool, "session", session)
        errors = []

        def work() -> None:
            try:
                act(person)
            except BaseException as error:
                errors.append(error)
                person.enter("/quit")

        thread = threading.Thread(target=work)
        thread.start()
        record_demos(cfg, tmp_path / "demos", output, person.terminal, headless=True)
        thread.join(TIMEOUT_SECONDS)
        if errors:
            raise errors[0]
        return output.lines

    return run


def recorded_actions(directory: Path) -> list[list[str]]:
    return [
        [actions.format_action(turn.decision.action) for turn in demo.turns]
        for demo in demos.read(directory / "demos")
    ]


def site_config(**changes):
    suite = dataclasses.replace(MY_SITE.suite, **changes)
    return dataclasses.replace(
        MY_SITE, suite=suite, bc=dataclasses.replace(MY_SITE.bc, demos_per_task=1)
    )


# --- example in examples/my_site ------------------------------------------------------------------


def quoted(lines: list[str], start: str) -> str:
    return next(line for line in reversed(lines) if line.startswith(start)).split('"')[1]


def order(person: Person) -> None:
    person.read('Order one "')
    person.click(f"text={quoted(person.output.lines, 'Order one')}")


def save_name(person: Person) -> None:
    person.read('Save the name "')
    person.click("#name")
    person.type(quoted(person.output.lines, "Save the name"))
    person.click("#save")


def test_person_records_demonstrations_of_example(record, tmp_path):
    def act(person):
        order(person)
        save_name(person)

    lines = record(act, site_config())
    drink, name = quoted(lines, "Order one"), quoted(lines, "Save the name")
    ordered, saved = demos.read(tmp_path / "demos")
    assert ordered.task.id.startswith("my_site/order/")
    (turn,) = ordered.turns
    assert turn.decision.thought.endswith(f"click {drink} [{turn.decision.action.element_id}]")
    assert f"button {drink} [{turn.decision.action.element_id}]" in turn.observation.text
    # The click into the field is not a turn; the page reads as before the text until it is typed.
    typed, clicked = saved.turns
    assert actions.format_action(typed.decision.action) == (
        f'do(action="Type", argument="{name}", element="7")'
    )
    assert actions.format_action(clicked.decision.action) == 'do(action="Click", element="8")'
    assert "textbox Name [7]\n" in typed.observation.text
    assert f"textbox Name [7] = {name}\n" in clicked.observation.text
    assert "kept: 2 demonstrations" in lines[-1]


def test_recording_uses_threads(record, tmp_path):
    browser = dataclasses.replace(MY_SITE.browser, worker_type="process")
    record(order, dataclasses.replace(site_config(tasks=("order",)), browser=browser))
    assert len(recorded_actions(tmp_path)) == 1


def test_failed_episode_is_repeated(record, tmp_path):
    def act(person):
        person.read('Order one "')
        person.click(f"button:not(:text('{quoted(person.output.lines, 'Order one')}'))")
        person.read("not kept: reward 0")
        person.enter("")
        wait_until(lambda: len(person.sessions) == 2, "second window")
        order(person)

    record(act, site_config(tasks=("order",)))
    (calls,) = recorded_actions(tmp_path)
    assert len(calls) == 1


def test_recording_continues_with_tasks_without_demonstration(record, tmp_path):
    def first(person):
        order(person)
        person.read("kept: 1 demonstrations")
        person.enter("/quit")

    def second(person):
        save_name(person)

    record(first, site_config())
    (first_demo,) = demos.read(tmp_path / "demos")
    lines = record(second, site_config())
    assert lines[0].startswith("1 demonstrations in ") and lines[0].endswith("; 1 tasks to do")
    # Existing demonstrations stay as they are.
    existing, added = demos.read(tmp_path / "demos")
    assert existing == first_demo and added.task.id.startswith("my_site/save-name/")


def test_batches_of_behavior_cloning_read_demonstrations(record, tmp_path):
    record(order, site_config(tasks=("order",)))
    batches = demos.make_batches(demos.read(tmp_path / "demos"), size=1, epochs=1, seed=0)
    ((demonstration,),) = demos.iterate(batches, start=0)
    tokenizer = ChatTokenizer(resolve_dir(MY_SITE.policy.path))
    episode = demos.to_episode(demonstration, tokenizer, PromptFormat(TEMPLATES["compact"]))
    assert episode.reward == 1
    assert episode.turns[0].response_text.startswith('<think> Task: Order one "')


# --- other pages ----------------------------------------------------------------------------------

PAGE = """<!doctype html><title>Form</title><body>
<script>
  const events = [];
  for (const type of ["pointerdown", "mousedown", "click", "keydown", "keyup", "input", "change",
                      "focus", "blur", "contextmenu", "mouseover", "wheel"])
    addEventListener(type, (e) => events.push(`${type} ${e.target.id ?? ""}`), true);
</script>
%s"""


@pytest.fixture
def page_config(tmp_path, monkeypatch):
    """Return a function that returns the config of one task on a page with this body."""

    def make(body: str, **fields):
        site = tmp_path / "site"
        site.mkdir(exist_ok=True)
        (site / "index.html").write_text(PAGE % body)
        task = SiteTask(
            **{"intent": "Go.", "reward": lambda page, answer: answer == "ok", **fields}
        )
        monkeypatch.setattr(
            "webagent_jax.suites.registry.load_factory",
            lambda spec: (
                lambda pool, config: SiteSuite(pool, config, site, {"go": lambda rng: task})
            ),
        )
        return site_config(factory="a:b", tasks=())

    return make


def test_each_kind_of_input_becomes_action(record, page_config, tmp_path):
    cfg = page_config(
        "<label><input type=checkbox id=box> Gift</label>"
        "<select id=list><option>Red<option>Blue<option>Green</select>"
        "<textarea id=note>old</textarea><input id=query placeholder=Search>"
        "<a href='#x' id=link>Link</a><p id=menu tabindex=0>Menu</p>"
        "<input id=slider type=range min=0 max=10 value=0>",
    )
    state = []

    def act(person):
        person.click("label")
        person.click("#list")
        person.press("ArrowDown", "ArrowDown", "Tab")
        person.click("#note")
        person.press("Control+a", *"two", "Enter", *"lines")
        person.click("#query")
        person.type("tea")
        person.press("Enter")
        person.click("#menu", button="right")
        person.click("#slider")
        person.press("ArrowRight", "ArrowRight", "ArrowRight", "Tab")
        person.press("Escape")
        person.wait_for_page()
        script = "[box.checked, list.value, note.value, query.value, slider.value]"
        state.extend(person.sessions[-1].evaluate(script))
        person.enter("ok")

    record(act, cfg)
    assert recorded_actions(tmp_path) == [
        [
            'do(action="Click", element="1")',
            'do(action="Select Dropdown Option", argument="Green", element="2")',
            r'do(action="Type", argument="two\nlines", element="3")',
            'do(action="Search", argument="tea", element="4")',
            'do(action="Right Click", element="6")',
            'do(action="Type", argument="3", element="7")',
            'do(action="Press", argument="Escape", element="7")',
            'exit(message="ok")',
        ]
    ]
    assert state == [True, "Green", "two\nlines", "tea", "3"]


def test_page_receives_only_events_of_actions(record, page_config, tmp_path):
    events = []

    def act(person):
        person.click("#a", click_count=2, delay=10)
        person.click("#name")
        person.type("Ada")
        person.press("Tab")
        person.wait_for_page()
        events.extend(person.sessions[-1].evaluate("events"))
        person.enter("ok")

    record(act, page_config("<button id=a>A</button><input id=name aria-label=Name>"))
    # One click of the double click; the text in one event but its last character.
    assert events == [
        *("pointerdown a", "mousedown a", "focus a", "click a"),
        *("pointerdown name", "mousedown name", "blur a", "focus name", "click name"),
        *("input name", "keydown name", "input name", "keyup name"),
    ]


@pytest.mark.parametrize("presses_before", [False, True])
def test_page_receives_one_click_when_person_clicks_during_action(
    record, page_config, presses_before
):
    events = []

    def act(person):
        person.wait_for_page()
        (box,) = person.sessions[-1].evaluate("[a.getBoundingClientRect().toJSON()]")

        async def click_twice(page):
            await page.mouse.move(box["x"] + 6, box["y"] + 6)
            await page.evaluate("__webagentRecorder.pass({clicks: 0, keys: []})")
            if presses_before:
                await page.mouse.down()
            await page.evaluate("__webagentRecorder.pass({clicks: 1, keys: []})")
            if not presses_before:
                await page.mouse.down()
            for press in (page.mouse.down, page.mouse.up, page.mouse.up):
                await press()

        person.sessions[-1].with_page(click_twice)
        events.extend(person.sessions[-1].evaluate("events"))
        person.enter("ok")

    record(act, page_config("<button id=a>A</button>"))
    assert events == ["pointerdown a", "mousedown a", "focus a", "click a"]


def test_click_that_changes_page_stays_before_text(record, page_config, tmp_path):
    def act(person):
        person.click("#name")
        person.type("Ada")
        person.wait_for_page()
        person.enter("ok")  # an unfinished text is an action too

    record(
        act,
        page_config(
            "<input id=name aria-label=Name onclick=\"hint.textContent='Two words'\"><p id=hint>"
        ),
    )
    assert recorded_actions(tmp_path) == [
        [
            'do(action="Click", element="1")',
            'do(action="Type", argument="Ada", element="1")',
            'exit(message="ok")',
        ]
    ]


def test_text_after_click_into_field_follows_dialog_of_page(record, page_config, tmp_path):
    def act(person):
        person.click("button")
        person.click("#name")
        person.type("Ada")
        person.wait_for_page()
        person.enter("ok")

    record(
        act,
        page_config(
            "<button onclick=\"alert('Enter a name first')\">Add</button>"
            "<input id=name aria-label=Name>"
        ),
    )
    (demonstration,) = demos.read(tmp_path / "demos")
    kinds = [turn.decision.action.kind for turn in demonstration.turns]
    assert kinds == [ActionKind.CLICK, ActionKind.TYPE, ActionKind.EXIT]
    assert "Enter a name first" in (demonstration.turns[1].observation.error or "")


def test_click_and_text_in_frame_become_actions(record, page_config, tmp_path):
    state = []

    def act(person):
        person.click("button", frame="iframe")
        person.click("input", frame="iframe")
        person.type("tea")
        person.press("Tab")
        person.wait_for_page()
        script = "[clicks, frames[0].document.querySelector('input').value]"
        state.extend(person.sessions[-1].evaluate(script))
        person.enter("ok")

    inner = "<button onclick='parent.clicks++'>Inner</button><input aria-label=Note>"
    cfg = page_config(
        f'<script>var clicks = 0</script><button>Outer</button><iframe srcdoc="{inner}"></iframe>'
    )
    record(act, cfg)
    assert recorded_actions(tmp_path) == [
        [
            'do(action="Click", element="2")',
            'do(action="Type", argument="tea", element="3")',
            'exit(message="ok")',
        ]
    ]
    assert state == [1, "tea"]


def test_click_in_another_tab_switches_to_it(record, page_config, tmp_path):
    clicks = []

    def act(person):
        person.click("#link")
        person.wait_for_page()

        async def click_button_of_first_tab(page):
            await page.context.pages[0].locator("#button").click(force=True)

        person.sessions[-1].with_page(click_button_of_first_tab)
        person.read("Switch Tab")
        person.click("#button")
        person.wait_for_page()
        clicks.append(person.sessions[-1].evaluate("clicks"))
        person.enter("ok")

    cfg = page_config(
        "<script>let clicks = 0</script><a id=link target=_blank href=second.html>Second</a>"
        "<button id=button onclick='clicks++'>First</button>"
    )
    (tmp_path / "site" / "second.html").write_text("<!doctype html><p>Second page")
    record(act, cfg)
    assert recorded_actions(tmp_path) == [
        [
            'do(action="Click", element="1")',
            'do(action="Switch Tab", argument="0")',
            'do(action="Click", element="2")',
            'exit(message="ok")',
        ]
    ]
    # The click in the tab that the agent did not see only switched to it.
    assert clicks == [1]


def test_wheel_scrolls_where_observation_contains_viewport_only(record, page_config, tmp_path):
    def act(person):
        person.click("#top")
        person.scroll(300)
        person.click("#bottom")
        person.wait_for_page()
        person.enter("ok")

    cfg = page_config(
        "<button id=top>Top</button><p style='height: 900px'></p><button id=bottom>Bottom</button>"
    )
    sizes = {"row_tokens": 4_096}
    cfg = dataclasses.replace(
        cfg,
        browser=dataclasses.replace(cfg.browser, observation_format="webarena_lite"),
        engine=dataclasses.replace(cfg.engine, max_model_len=4_096),
        bc=dataclasses.replace(cfg.bc, **sizes),
        grpo=dataclasses.replace(cfg.grpo, **sizes),
    )
    record(act, cfg)
    kinds = [
        turn.decision.action.kind
        for (demo,) in [demos.read(tmp_path / "demos")]
        for turn in demo.turns
    ]
    assert kinds == [ActionKind.CLICK, ActionKind.SCROLL_DOWN, ActionKind.CLICK, ActionKind.EXIT]


def test_element_outside_of_observation_and_left_page_are_not_recorded(
    record, page_config, tmp_path
):
    def act(person):
        person.click("#text")
        person.read("not recorded: the agent does not see this element")
        person.wait_for_page()
        with contextlib.suppress(InfraError):
            person.sessions[-1].with_page(lambda page: page.reload())
        person.read("not kept: the page changed without an action")
        person.enter("/quit")

    record(act, page_config("<p id=text>Text</p>"))
    assert not demos.exists(tmp_path / "demos")


@pytest.mark.parametrize(
    ("line", "action"),
    [
        ("", Action(ActionKind.EXIT, value="")),
        ("42  km", Action(ActionKind.EXIT, value="42  km")),
        ("/answer /forum now", Action(ActionKind.EXIT, value="/forum now")),
        ("/goto\thttp://x", Action(ActionKind.GOTO, value="http://x")),
        ("/goto  http://x", Action(ActionKind.GOTO, value="http://x")),
        ("/back", Action(ActionKind.GO_BACK)),
    ],
)
def test_line_of_terminal_becomes_action(line, action):
    assert _parse_line(line) == action


def test_command_after_space_is_no_answer(record, page_config, tmp_path):
    def act(person):
        person.read("Go.")
        person.enter("  /quit")

    record(act, page_config("", reward=lambda page, answer: 1))
    assert not demos.exists(tmp_path / "demos")


@pytest.mark.parametrize(
    ("text", "is_recorded"),
    [("tea </b>", True), ("x <think> y </think> z", False), ("a</answer>b", False)],
)
def test_text_that_demonstrations_cannot_contain_is_refused(text, is_recorded):
    observation = Observation("textbox Note [1]", "u", elements={"1": Element("textbox", "Note")})
    action = Action(ActionKind.TYPE, "1", text)
    assert (_refusal(action, observation) is None) == is_recorded


def test_line_in_other_encoding_does_not_end_recording(monkeypatch):
    terminal = io.TextIOWrapper(io.BytesIO(b"caf\xe9\n/skip\n"), encoding="utf-8")
    monkeypatch.setattr("sys.stdin", terminal)
    lines = queue.SimpleQueue()
    record_command._read_lines(lines)
    assert [lines.get(timeout=1) for _ in range(3)] == ["caf\ufffd", "/skip", "/quit"]


def test_recorder_without_display_raises_config_error(tmp_path, monkeypatch):
    try:
        chromium.find_executable(headless=False)
    except chromium.ChromiumMissingError as missing:
        pytest.skip(str(missing))
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    with pytest.raises(ConfigError, match="there is no display") as error:
        record_demos(MY_SITE, tmp_path, NullProgress(), queue.SimpleQueue())
    assert len(str(error.value).splitlines()) <= 3


def test_suite_without_browser_of_this_package_is_refused(record):
    suite = {"factory": "tests.suites.test_gym_suite:GuessingGame", "train_seeds_per_task": 20}
    with pytest.raises(ConfigError, match="use webagent collect, with --demo_source=policy"):
        record(lambda person: None, site_config(**suite))


def test_person_records_miniwob_page(record, tmp_path):
    miniwob = SuiteConfig(name="miniwob", tasks=("click-test",), train_seeds_per_task=20)
    record(
        lambda person: person.click("#subbtn"), dataclasses.replace(site_config(), suite=miniwob)
    )
    assert recorded_actions(tmp_path) == [['do(action="Click", element="1")']]
