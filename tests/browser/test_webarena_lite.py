"""Tests of the webarena_lite format, the simplified HTML that published policies were trained on.

The expected outputs of pages/ and RULES equal those of VisualAgentBench's own parser
(third_party/visualagentbench/compare.py).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from webagent_jax import config
from webagent_jax.browser import BrowserPool, Session
from webagent_jax.browser.webarena_lite import render
from webagent_jax.config import BrowserConfig, ConfigError
from webagent_jax.types import Action, ActionKind, Observation

PAGES = Path(__file__).parent / "pages"
LITE_CONFIG = BrowserConfig(
    observation_format="webarena_lite",
    max_observation_chars=100_000,
    data_bbox=False,  # widths of words depend on the installed fonts
    call_timeout=60.0,
    navigation_timeout=60.0,
)
Show = Callable[[str], Session]


@pytest.fixture(scope="module")
def pool() -> Iterator[BrowserPool]:
    with BrowserPool(LITE_CONFIG) as browser_pool:
        yield browser_pool


def split_tags(observation: Observation) -> list[str]:
    """Return a line per tag with the words that follow it; joined by spaces they are the text."""
    return observation.text.replace(" <", "\n<").splitlines()


@pytest.mark.browser
@pytest.mark.parametrize("name", sorted(path.stem for path in PAGES.glob("*.html")))
def test_page_matches_expected_html(name: str, session: Session, site: Any) -> None:
    site.pages["/"] = (PAGES / f"{name}.html").read_text()
    session.goto(f"http://{site.origin}/")
    observation = session.observe()
    assert split_tags(observation) == (PAGES / f"{name}.txt").read_text().splitlines()
    assert not observation.truncated


# Tags around a rule: html and body appear because they contain several elements with text.
WRAPPER = (["<html>", "<body>"], ['<hr title="end">', "</hr>", "</body>", "</html>"])

RULES: dict[str, tuple[str, str]] = {
    "the innermost clickable is labelled": (
        """<div onclick="0">Card <a href="#">Home <b>page</b></a></div><p>Words</p>
        <div tabindex="0">By key</div><div role="menuitem">By role</div>
        <div class="my-button">By class</div><i style="cursor:pointer">By cursor</i>
        <u id="listens">By listener alone</u><button disabled>Off</button>
        <script>listens.addEventListener("click", () => 0)</script>""",
        """<div data-text="Card"> Card
        <a data-text="Home"> Home
        <b id="1" data-text="page"> page
        </b>
        </a>
        </div>
        <p data-text="Words"> Words
        </p>
        <div id="2" data-text="By key"> By key
        </div>
        <div id="3" data-text="By role"> By role
        </div>
        <div id="4" data-text="By class"> By class
        </div>
        <i id="5" data-text="By cursor"> By cursor
        </i>
        <u data-text="By listener alone"> By listener alone
        </u>
        <button id="6" data-text="Off"> Off
        </button>""",
    ),
    "what is covered or out of view has no label": (
        """<button>Under</button><p>a</p><div style="position:fixed; inset:0 50% 0 0"><p>Over</p>
        </div><button style="position:absolute; top:900px">Below</button>
        <p style="position:absolute; top:-90px">Above</p>
        <button style="visibility:hidden; position:absolute; left:900px">Invisible</button>""",
        """<button data-text="Under"> Under
        </button>
        <p data-text="a"> a
        </p>
        <p data-text="Over"> Over
        </p>
        <button data-text="Invisible"> Invisible
        </button>""",
    ),
    "a tag stands for words or for several that have some, seen or not": (
        """<div><div><p>one</p></div></div><ul><li hidden>a<li hidden>b</ul>
        <section><p hidden>c</p></section><p aria-hidden="true">d</p>""",
        """<p data-text="one"> one
        </p>
        <ul>
        </ul>""",
    ),
    "words after a tag are told by data-text alone": (
        """<p>To <b>this</b> day <i>and</i> on.</p><p>no&nbsp;break \n and   space</p>
        <p>1 &lt; 2 "said"</p>""",
        """<p data-text="To,day,on."> To
        <b data-text="this"> this
        </b>
        <i data-text="and"> and
        </i>
        </p>
        <p data-text="no\xa0break and space"> no\xa0break and space
        </p>
        <p data-text="1
        < 2 "said""> 1
        < 2 "said"
        </p>""",
    ),
    "fields": (
        """<input value="Ada" placeholder="Name"><input type="password" value="a" id="p">
        <input type="checkbox" checked><input type="checkbox" value="7"><input type="radio" checked>
        <input type="hidden" value="h"><textarea title="Story">two
        lines</textarea><script>p.value = "typed"</script>""",
        """<input id="1" value="Ada" placeholder="Name">
        </input>
        <input id="2" value="a" type="password" data-value="typed">
        </input>
        <input id="3" type="checkbox" data-value="on" data-status="checked">
        </input>
        <input id="4" value="7" type="checkbox" data-status="not-checked">
        </input>
        <input id="5" type="radio" data-value="on">
        </input>
        <textarea id="6" title="Story" data-value="two lines"> two lines
        </textarea>""",
    ),
    "selects": (
        """<select><option value="c">Chile<option value="p" selected>Peru
        <optgroup label="G"><option>Cuba</optgroup></select>""",
        """<select id="1" data-value="p" data-text="Peru">
        <option value="c" data-text="Chile"> Chile
        </option>
        <option value="p" data-text="Peru" data-status="selected"> Peru
        </option>
        </select>""",
    ),
    "attributes that are kept": (
        """<p title="T" data-testid="t" data-label="l" data-value="v" class="x" lang="en">a</p>
        <p title="same" data-label="same">same</p>""",
        """<p title="T" data-value="v" data-text="a" data-testid="t" data-label="l"> a
        </p>
        <p title="same"> same
        </p>""",
    ),
}


@pytest.mark.browser
@pytest.mark.parametrize("rule", RULES)
def test_rule_matches_expected_tags(rule: str, show: Show) -> None:
    body, expected = RULES[rule]
    expected_tags = [*WRAPPER[0], *(row.strip() for row in expected.splitlines()), *WRAPPER[1]]
    assert split_tags(show(f"{body}<hr title=end>").observe()) == expected_tags


@pytest.mark.browser
def test_same_origin_frames_and_shadow_roots_are_included(show: Show) -> None:
    session = show(
        """<iframe title="F" srcdoc="<button onclick='this.innerText = 1'>In</button>"></iframe>
        <div id="h"></div><script>
        h.attachShadow({mode: "open"}).innerHTML = "<p>Shade</p><button>Deep</button>";</script>"""
    )
    observation = session.observe()
    frame, shadow = observation.text.split("</iframe>")
    assert '<iframe title="F">' in frame and '<button id="1" data-text="In"> In' in frame
    assert '<div> <p data-text="Shade"> Shade </p> <button id="2"' in shadow
    assert session.act(Action(ActionKind.CLICK, "1")) is None
    assert '<button id="1" data-text="1">' in session.observe().text


@pytest.mark.browser
@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("/picture.svg", '<embed id="1" type="image/svg+xml"> </embed>'),
        ("/page", '<embed id="1"> <html> <p data-text="In"> In </p> </html> </embed>'),
        ("http://127.0.0.1:1/", '<embed id="1"> </embed>'),
    ],
)
def test_embed_has_id(source: str, expected: str, show: Show, site: Any) -> None:
    """VisualAgentBench also gives it an id; content that scripts can read is inside."""
    site.add_page("<p>In</p>", "/page")
    kind = "type=image/svg+xml" if source.endswith("svg") else ""
    session = show(f"<embed {kind} src={source} width=300 height=150><p>x</p>")
    observation = session.observe()
    assert f"{expected} <p" in observation.text and list(observation.elements) == ["1"]
    assert session.act(Action(ActionKind.CLICK, "1")) is None


@pytest.mark.browser
def test_long_attributes_and_words_are_truncated(show: Show) -> None:
    text = show(f"<p title='{'t' * 600}'>{'𝛼' * 600}</p><p>b</p>").observe().text
    assert f'<p title="{"t" * 500}" data-text="{"𝛼" * 500}"> {"𝛼" * 500} </p>' in text


@pytest.mark.browser
def test_element_ids_are_stable_and_equal_in_both_formats(show: Show) -> None:
    session = show("<div id=d><button>A</button> <button>B</button></div>")
    assert list(session.observe().elements) == ["1", "2"]
    session.evaluate("d.insertAdjacentHTML('afterbegin', '<button>New</button>')")
    observation = session.observe()
    assert [(i, e.kind, e.name) for i, e in observation.elements.items()] == [
        ("3", "button", "New"),
        ("1", "button", "A"),
        ("2", "button", "B"),
    ]
    compact = session.evaluate(
        """() => JSON.parse(__webagent.observe({format: "compact", chars: 1e5, nodes: 1e5,
        millis: 1e4, lastId: 0})).entries.map(({id, name}) => [id, name])"""
    )
    assert compact == [[i, element.name] for i, element in observation.elements.items()]


@pytest.mark.browser
def test_replacements_take_over_ids(show: Show) -> None:
    session = show("<p>Ann <button>Open</button></p><p>Bob <button>Open</button></p><a>Other</a>")
    text = session.observe().text
    session.evaluate("() => { document.body.innerHTML = document.body.innerHTML }")
    assert session.observe().text == text
    session.evaluate("() => { document.body.innerHTML += '<a>New</a>' }")
    assert [e.name for e in session.observe().elements.values()] == ["Open", "Open", "Other", "New"]
    assert list(session.observe().elements) == ["1", "2", "3", "4"]


@pytest.mark.browser
def test_type_select_and_click_change_html(show: Show) -> None:
    session = show(
        """<label>Name <input></label><select><option>Chile<option>Peru</select>
        <a href="#" onclick="this.title = 'done'"><span>Go</span></a>"""
    )
    ids = {element.kind: i for i, element in session.observe().elements.items()}
    for action in (
        Action(ActionKind.TYPE, ids["textbox"], "Ada"),
        Action(ActionKind.SELECT, ids["select"], "peru"),
        Action(ActionKind.CLICK, ids["item"]),
    ):
        assert session.act(action) is None
    observation = session.observe()
    assert {e.kind: (e.name, e.value) for e in observation.elements.values()} == {
        "textbox": ("Name", "Ada"),
        "select": ("", "Peru"),
        "item": ("Go", ""),
    }
    for words in ('data-value="Ada"', 'data-value="Peru"', '<a title="done">'):
        assert words in observation.text


@pytest.mark.browser
def test_observation_contains_viewport_only(show: Show) -> None:
    session = show("".join(f"<p style='height:200px; margin:0'>row {i}</p>" for i in range(20)))
    top = session.observe()
    assert "row 0 " in top.text and "row 4 " not in top.text and not top.truncated
    assert session.act(Action(ActionKind.SCROLL_DOWN)) is None
    bottom = session.observe()
    assert "row 0 " not in bottom.text and "row 4 " in bottom.text and "row 9 " not in bottom.text


@pytest.mark.browser
def test_long_page_is_truncated_at_tag(site: Any, pool: BrowserPool) -> None:
    links = "".join(f"<li><a href='#'>Link {i}</a><b>!</b></li>" for i in range(30))
    small_config = dataclasses.replace(LITE_CONFIG, max_observation_chars=1000, data_bbox=True)
    with (
        BrowserPool(small_config) as small_pool,
        small_pool.session(origins=[site.origin]) as session,
    ):
        session.goto(site.add_page(f"<ul style='font: 14px/20px monospace'>{links}</ul>"))
        observation = session.observe()
    text, note = observation.text.split("\n")
    assert observation.truncated and len(text) <= 1000
    assert note.startswith("[cut here: ") and note.endswith("; scroll to see other parts]")
    assert text.count("<li ") == text.count("</li>") > 3 and text.endswith("</ul> </html>")
    assert len(observation.elements) == text.count("<a id=")
    assert text.startswith('<html data-bbox="0,0,1280,628"> <ul data-bbox=')


@pytest.mark.browser
def test_data_bbox_is_in_viewport_pixels(site: Any) -> None:
    """Content of frames included."""
    inner = "<body style='margin:0'><p style='margin:5px;height:10px'>a</p><p>b</p>"
    frame = f'<iframe style="position:absolute;left:50px;top:100.6px" srcdoc="{inner}"></iframe>'
    bbox_config = dataclasses.replace(LITE_CONFIG, data_bbox=True)
    with BrowserPool(bbox_config) as pool, pool.session(origins=[site.origin]) as session:
        session.goto(site.add_page(f"<body style='height:3000px;margin:8px'>{frame}<p>c</p>"))
        session.evaluate("scrollTo(0, 50)")
        text = session.observe().text
    assert '<iframe id="1" data-bbox="50,51,304,154">' in text
    assert '<p data-text="a" data-bbox="57,58,290,10"> a </p>' in text


def test_render_closes_open_tags() -> None:
    box = {"id": "1", "kind": "link", "name": "x", "box": [0, 0, 1, 1]}
    entries: list[dict[str, Any]] = [
        {"text": "<ul>", "tag": "ul"},
        {"text": '<a id="1"> x', "tag": "a", **box},
        {"close": True},
        {"text": "<p> long words", "tag": "p"},
        {"close": True},
        {"close": True},
    ]
    full_text = '<ul> <a id="1"> x </a> <p> long words </p> </ul>'
    assert render(entries, len(full_text) + 1) == ([full_text], [entries[1]], True)
    assert render(entries, len(full_text)) == (
        ['<ul> <a id="1"> x </a> </ul>'],
        [entries[1]],
        False,
    )
    assert render(entries, 12) == (["<ul> </ul>"], [], False)
    assert render(entries, 3) == ([], [], False) and render([], 3) == ([], [], True)


def test_invalid_observation_options_are_rejected() -> None:
    with pytest.raises(
        ConfigError, match="observation_format='html' is not one of: compact, webarena_l"
    ):
        config.from_config_dict({"browser": {"observation_format": "html"}})
    with pytest.raises(ConfigError, match=r"browser\.data_bbox='no' is not of type bool"):
        config.from_config_dict({"browser": {"data_bbox": "no"}})


@pytest.mark.browser
def test_fields_named_like_dom_properties_are_observed(show: Show) -> None:
    fields = "".join(
        f"<input name={name} aria-label={name}>"
        for name in ("localName", "getAttribute", "matches")
    )
    session = show(f"<form>{fields}</form>")
    assert [element.name for element in session.observe().elements.values()] == [
        "localName",
        "getAttribute",
        "matches",
    ]
