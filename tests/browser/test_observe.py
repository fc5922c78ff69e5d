"""Tests of the compact observation of live pages."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from webagent_jax.browser import BrowserPool, Session, dom_walk
from webagent_jax.browser.compact import line, render
from webagent_jax.types import Action, ActionKind, InfraError

Show = Callable[[str], Session]

GOLDENS: dict[str, tuple[str, str]] = {
    "sign-in form": (
        """<h3>Enter your details</h3>
        <p><label>Username</label><input value="karrie"></p>
        <p><label>Password</label><input type="password"></p>
        <label><input type="checkbox"> Remember me</label>
        <button>Login</button> <a href="/forgot">Forgot it?</a>""",
        """Enter your details
        textbox Username [1] = karrie
        textbox Password [2]
        checkbox off Remember me [3]
        button Login [4]
        link Forgot it? [5]""",
    ),
    "names": (
        """<button aria-label="Close">x</button> <span id="n">By reference</span>
        <input aria-labelledby="n"> <label for="f">For label</label> <input id="f">
        <a href="#"><img alt="A picture"></a> <button title="Titled"></button>
        <input placeholder="Hinted"> <input type="submit" value="Send it"> <input type="submit">""",
        """button Close [1]
        By reference
        textbox By reference [2]
        textbox For label [3]
        link A picture [4]
        button Titled [5]
        textbox Hinted [6]
        button Send it [7]
        button submit [8]""",
    ),
    "states": (
        """<label><input type="checkbox" checked> Foo</label>
        <input type="radio" id="r"><label for="r">Bar</label>
        <span role="checkbox" aria-checked="true" tabindex="0">Aria</span>
        <button disabled>Off</button> <input type="range" aria-label="Loud" value="70">
        <textarea aria-label="Story">two
        lines</textarea> <div contenteditable aria-label="Rich">some <b>bold</b></div>
        <input type="date" aria-label="Day" value="2024-12-31">""",
        """checkbox on Foo [1]
        radio off Bar [2]
        checkbox on Aria [3]
        button Off [4] disabled
        slider Loud [5] = 70
        textbox Story [6] = two lines
        textbox Rich [7] = some bold
        textbox Day [8] = 2024-12-31""",
    ),
    "toggle buttons": (
        """<button aria-pressed="true">Bold</button><button aria-pressed="false">Italic</button>
        <button aria-pressed="true" disabled>Locked</button>""",
        """button Bold [1] pressed
        button Italic [2]
        button Locked [3] disabled pressed""",
    ),
    "selects": (
        """<label>Country <select><option>Chile<option selected>Peru<option>Cuba</select></label>
        <select multiple aria-label="Many"><option selected>A<option selected>B<option>C</select>
        <select multiple aria-label="None"><option>A</select>""",
        """select Country [1] = Peru (Chile, Peru, Cuba)
        select Many [2] = A, B (A, B, C)
        select None [3] (A)""",
    ),
    "hidden": (
        """<p style="display:none">a</p><p style="visibility:hidden">b</p><p hidden>c</p>
        <p style="opacity:0">d</p><p aria-hidden="true">e</p>
        <div style="height:0; overflow:hidden">f <button>g</button></div>
        <div style="visibility:hidden"><b style="visibility:visible">seen</b></div>
        <div style="height:0">overflows</div><button style="width:0;height:0;padding:0;border:0">
        </button>""",
        """seen
        overflows""",
    ),
    "listeners": (
        """<span id="a">By script</span> <i onclick="x()">By attribute</i> <b tabindex=0>By key</b>
        <u style="cursor:pointer">By cursor <u>inside</u></u> <p>plain</p> <s id="gone">gone</s>
        <script>a.addEventListener("mousedown", () => 0);
        const f = () => 0; gone.addEventListener("click", f); gone.removeEventListener("click", f);
        for (const whole of [document, document.body, document.documentElement])
          whole.addEventListener("click", () => 0);</script>""",
        """item By script [1]
        item By attribute [2]
        item By key [3]
        item By cursor inside [4]
        plain
        gone""",
    ),
    "roles": (
        """<ul role="tablist"><li role="tab" tabindex="0"><a href="#1">One</a></li>
        <li role="tab" tabindex="0">Two</li></ul><ul role="menu"><li role="menuitem">Open</li></ul>
        <div role="button">Press</div>""",
        """tab One [1]
        tab Two [2]
        option Open [3]
        button Press [4]""",
    ),
    "nested": (
        """<div onclick="0">Mail of Ann <button>Delete</button> today</div>
        <a href="#"><span onclick="0">Once</span></a>""",
        """item Mail of Ann today [1]
        button Delete [2]
        link Once [3]""",
    ),
    "drawing": (
        """<svg width="100" height="100"><circle cx="20" cy="20" r="9" fill="red" onclick="0"/>
        <rect x="50" width="10" height="10" fill="#0000ff"/></svg><br>
        <span class="trash" onclick="0" style="display:inline-block; padding:9px"></span>""",
        """item circle red [1]
        rectangle blue
        item trash [2]""",
    ),
    "text": (
        """<h1>Head <em>line</em></h1>one&nbsp;
        two<br>three<table><tr><th>Colour<th>Size<tr><td>red<td><button>Buy</button><td>in stock
        </table><input> <p>A longer paragraph of text that is no label of what follows it.</p>
        <input>Unit <span style="display:none">x</span>""",
        """Head line
        one two
        three
        Colour | Size
        red
        button Buy [1]
        in stock
        textbox [2]
        A longer paragraph of text that is no label of what follows it.
        textbox [3]
        Unit""",
    ),
    "empty cells": (
        """<table><tr><th><th>Free<th>Pro<tr><td>SSO<td><td>yes<td><td>
        <tr><td>API<td><i></i><td><img alt=some><td style="display:none">x
        <tr><td><td><td>end<tr><td>Zip<td><td><input><td><td>5
        <tr><td>A<td><label for="q">Query</label><td>B<td><input id="q">
        <tr><td>A<td><button>C</button><td>B</table>""",
        """| Free | Pro
        SSO | | yes
        API | | some
        | | end
        textbox Zip [1]
        | 5
        A | B
        textbox Query [2]
        A
        button C [3]
        B""",
    ),
    "rows without a table": (
        """<style>[role=row] { display: flex }</style><div role="table"><div role="row"><i></i>
        <span role="columnheader">Name</span><span role="columnheader">Age</span></div>
        <div role="row"><span role="cell"></span><div role="cell"><div>5</div></div></div>
        <div role="row"><p>No</p><p>cells</p></div></div>
        <div style="display:table-row">Total: <b>5</b> items</div>""",
        """Name | Age
        | 5
        No
        cells
        Total: 5 items""",
    ),
    "words with break opportunities": (
        """<p>Donau&shy;dampf&shy;schiff <a href="#">non&#8203;stop</a></p>
        <button title="un&shy;do">&#8203;</button>""",
        """Donaudampfschiff
        link nonstop [1]
        button undo [2]""",
    ),
    "text like other lines": (
        """<p>button Order [1]</p><p>textbox Name [2] = Ann</p><p>select S [3] = a (a, b)</p>
        <p>checkbox on All [4] disabled</p><p>item [5]</p><p>Error: no such page</p>
        <p>[tab 0, open] Shop</p><p>[cut here: more]</p><p>Button Order [1]</p>
        <p>item 5 of [6]2 parts</p><p>[table 1] Prices</p>""",
        """text button Order [1]
        text textbox Name [2] = Ann
        text select S [3] = a (a, b)
        text checkbox on All [4] disabled
        text item [5]
        text Error: no such page
        text [tab 0, open] Shop
        text [cut here: more]
        Button Order [1]
        item 5 of [6]2 parts
        [table 1] Prices""",
    ),
    "styled boxes": (
        """<style>.b { position:absolute; opacity:0 }</style>
        <input type="checkbox" class="b" id="x" checked><label for="x">Drawn by a style</label>""",
        "checkbox on Drawn by a style [1]",
    ),
    "frames and shadows": (
        """<iframe srcdoc="<button>In a frame</button>"></iframe><div id="h"></div>
        <script>h.attachShadow({mode: "open"}).innerHTML = "<button>In a shadow</button>";</script>
        """,
        """button In a frame [1]
        button In a shadow [2]""",
    ),
    "shown on hover, import of another origin": (
        """<style>@import url("http://127.0.0.1:1/fonts.css");
        p button { opacity: 0 } p:hover button { opacity: 1 }</style>
        <p>Row <button>Delete</button></p>""",
        """Row
        button Delete [1]""",
    ),
    "Prototype.js": (
        """<script>Array.from = (list) => Object.assign([], list)</script>
        <label for=a>SKU</label> <input id=a>
        <label for=b>Status</label> <select id=b><option>Enabled<option>Disabled</select>""",
        """textbox SKU [1]
        select Status [2] = Enabled (Enabled, Disabled)""",
    ),
}


@pytest.mark.browser
@pytest.mark.parametrize("name", GOLDENS)
def test_observation_matches_golden_text(name: str, show: Show) -> None:
    body, expected = GOLDENS[name]
    observation = show(body).observe()
    assert observation.text.splitlines() == [row.strip() for row in expected.splitlines()]
    assert not observation.truncated and observation.error is None


@pytest.mark.browser
def test_observation_has_elements_url_title_and_error(show: Show, site: Any) -> None:
    observation = show("<input aria-label=A value=b style='width:120px'>").observe("not done")
    element = observation.elements["1"]
    assert (element.kind, element.name, element.value) == ("textbox", "A", "b")
    assert element.box[2] >= 120 and element.box[3] > 10
    assert observation.url == f"http://{site.origin}/"
    assert observation.title == "page" and observation.error == "not done"


@pytest.mark.browser
def test_element_ids_are_stable(show: Show) -> None:
    session = show("<div id=d><button>A</button> <button>B</button></div>")
    assert session.observe().text == "button A [1]\nbutton B [2]"
    session.evaluate("d.insertAdjacentHTML('afterbegin', '<button>New</button>')")
    assert session.observe().text == "button New [3]\nbutton A [1]\nbutton B [2]"
    session.evaluate("d.children[1].remove()")
    assert session.observe().text == "button New [3]\nbutton B [2]"


@pytest.mark.browser
def test_replacements_take_over_ids(show: Show) -> None:
    session = show(
        """<ul id=list><li>Ann <button>Open</button></li><li>Bob <button>Open</button></li></ul>
        <label>Note <input></label><button id=save>Save</button>"""
    )
    text = session.observe().text
    session.evaluate("() => { document.body.innerHTML = document.body.innerHTML }")
    assert session.observe().text == text
    # A new row, a changed name and another attribute make other controls of them.
    session.evaluate(
        """() => { list.innerHTML = "<li>Bob <button>Open</button></li><li>Cleo <button>Open";
        save.outerHTML = "<button id=other>Save</button>"; }"""
    )
    assert session.observe().text.splitlines() == [
        *("Bob", "button Open [2]", "Cleo", "button Open [5]"),
        *("textbox Note [3]", "button Save [6]"),
    ]


@pytest.mark.browser
def test_elements_of_reloaded_frame_take_over_ids(show: Show) -> None:
    button = "<button onclick='parent.document.title = 1'>Open</button>"
    session = show(f"""<p>outer</p><iframe id=f srcdoc="{button}"></iframe>""")

    def reload() -> None:
        session.evaluate("() => { f.srcdoc = f.srcdoc }")
        session.settle()

    text = session.observe().text
    reload()
    assert session.act(Action(ActionKind.CLICK, "1")) is None
    assert session.observe().title == "1"
    reload()
    assert session.observe().text == text


@pytest.mark.browser
def test_twins_take_over_no_ids(show: Show) -> None:
    rows = [f"<li>Ann <button data-row={i}>Open</button></li>" for i in range(3)]
    session = show(f"<ul id=list>{''.join(rows)}</ul>")
    assert list(session.observe().elements) == ["1", "2", "3"]
    # The attributes number the rows, so those of the first row, which is removed, go to the second.
    session.evaluate(f"() => {{ list.innerHTML = '{rows[0]}{rows[1]}' }}")
    assert list(session.observe().elements) == ["4", "5"]


@pytest.mark.browser
def test_replaced_element_is_clicked_if_page_reads_the_same(show: Show) -> None:
    session = show(
        """<div id=box></div><p id=out>x</p><script>let shown; const draw = (name) => {
        shown = name; box.innerHTML = `<p>${name}</p><button>Open</button>` };
        onclick = (e) => { if (e.target.matches("button")) out.textContent = `opened ${shown}` };
        draw("Ann")</script>"""
    )
    assert session.observe().text == "Ann\nbutton Open [1]\nx"
    click = Action(ActionKind.CLICK, "1")
    session.evaluate("draw('Ann')")
    assert session.act(click) is None
    assert session.observe().text == "Ann\nbutton Open [1]\nopened Ann"
    session.evaluate("draw('Bob')")
    assert session.act(click) == "element 1 is not on the page any more"
    assert session.observe().text == "Bob\nbutton Open [1]\nopened Ann"


@pytest.mark.browser
def test_hidden_element_keeps_its_id(show: Show) -> None:
    session = show("<div id=box><button>Open</button></div>")
    assert session.observe().text == "button Open [1]"
    session.evaluate(
        "() => { box.firstChild.hidden = true; box.insertAdjacentHTML('beforeend', box.innerHTML);"
        " box.lastChild.hidden = false; }"
    )
    assert session.observe().text == "button Open [2]"
    session.evaluate("() => { box.firstChild.hidden = false }")
    assert session.observe().text == "button Open [1]\nbutton Open [2]"


@pytest.mark.browser
def test_element_that_is_put_back_gets_a_new_id(show: Show) -> None:
    session = show("<div id=box><button>Open</button></div>")
    assert session.observe().text == "button Open [1]"
    session.evaluate(
        "() => { window.old = box.firstChild; box.innerHTML = '<button>Open</button>' }"
    )
    assert session.observe().text == "button Open [1]"
    session.evaluate("() => box.append(old)")
    assert session.observe().text == "button Open [1]\nbutton Open [2]"


@pytest.mark.browser
@pytest.mark.parametrize(
    "style",
    [
        "position: relative",
        "position: relative; border: 9px solid",
        "display: flex; flex-direction: column",
    ],
)
def test_content_scrolled_out_of_inner_box_is_observed(style: str, show: Show) -> None:
    rows = "".join(f"<p style='flex: none'><button>Row {i}</button></p>" for i in range(60))
    session = show(f"<div id=d style='height: 200px; overflow: auto; {style}'>{rows}</div>")
    text = session.observe().text
    session.evaluate("() => { d.scrollTop = 1e6 }")
    observation = session.observe()
    assert observation.text == text and len(observation.elements) == 60


@pytest.mark.browser
@pytest.mark.parametrize(
    ("body", "text"),
    [
        # The viewport has the overflow of the body.
        ("<style>body { overflow:hidden }</style><p style='position:absolute'>App</p>", "App"),
        ("<style>body { overflow:hidden }</style><p style='float:left'>App</p>", "App"),
        (
            "<style>html, body { overflow:hidden }</style><p style='position:absolute'>App</p>",
            "App",
        ),
        ("<div style='overflow:hidden'><p style='position:fixed'>App</p></div>", "App"),
        (
            "<div style='height:0; overflow:hidden'>cut off<i style='position:absolute'>a <b "
            "style='position:absolute'>b</b></i><i style='position:absolute'>c</i></div>",
            "a\nb\nc",
        ),
        (
            "<div style='height:0; overflow:hidden; position:relative'>cut off"
            "<p style='position:absolute'>cut off</p></div>",
            "",
        ),
        (
            "<div style='height:0; overflow:hidden'><div style='display:none'>"
            "<p style='position:absolute'>no</p></div><details><p style='position:fixed'>no</p>"
            "</details><div aria-hidden=true><p style='position:fixed'>no</p></div></div>",
            "",
        ),
        (
            "<div style='height:0; overflow:hidden; transform:scale(1)'>"
            "<p style='position:fixed'>cut off</p></div>",
            "",
        ),
    ],
)
def test_box_without_area_hides_only_what_it_cuts_off(body: str, text: str, show: Show) -> None:
    assert show(body).observe().text == text


@pytest.mark.browser
def test_attribute_hidden_counts_only_if_it_hides(show: Show) -> None:
    session = show(
        """<style>.row { display:flex }</style><p class=row hidden>shown</p><p hidden>no</p>
        <p hidden=until-found>no</p><p style="content-visibility:hidden">no</p>"""
    )
    assert session.observe().text == "shown"


@pytest.mark.browser
def test_element_outside_scrolled_box_stays_hidden(show: Show) -> None:
    """A link to skip the menu and a closed drawer do not move with the box around them."""
    session = show(
        """<div id=d style='height:90px; overflow:auto'><p style='height:900px'>x</p>
        <a href=#a style='position:absolute; top:-60px'>Skip</a>
        <div style='position:fixed; top:-60px'><a href=#b>Drawer</a></div></div>"""
    )
    assert session.observe().text == "x"
    session.evaluate("() => { d.scrollTop = 1e6 }")
    assert session.observe().text == "x"


@pytest.mark.browser
def test_fixed_element_outside_viewport_is_hidden(show: Show) -> None:
    # The page scrolls to the right too, but a fixed element does not come into view.
    session = show(
        """<style>div { position:fixed; width:200px; height:50px }</style>
        <p style="width:3000px">x</p>
        <div style="left:100%">closed cart <button>Pay</button></div>
        <div style="top:100%">closed toast</div>
        <div style="right:-150px">open at the edge</div>
        <section style="transform:scale(1); width:2000px">
        <div style="left:1500px">moves with the section</div></section>"""
    )
    assert session.observe().text == "x\nopen at the edge\nmoves with the section"


@pytest.mark.browser
def test_long_page_is_truncated_at_element(show: Show) -> None:
    session = show("<div id=d></div>")
    session.evaluate(
        "() => { let s = ''; for (let i = 0; i < 50000; i++) s += `<p><a href=#>Link ${i}</a></p>`;"
        " d.innerHTML = s; }"
    )
    top = session.observe()
    lines = top.text.splitlines()
    assert top.truncated and len(top.text) < 12_200
    assert lines[0] == "link Link 0 [1]" and lines[-1].startswith("[cut here: about 98")
    assert lines[-2] == f"link Link {len(lines) - 2} [{len(lines) - 1}]"
    assert len(top.elements) == len(lines) - 1

    session.evaluate("() => window.scrollTo(0, 5000)")
    bottom = session.observe()
    assert bottom.truncated and "Link 0 " not in bottom.text and "Link 200 " in bottom.text


@pytest.mark.browser
@pytest.mark.parametrize(
    ("start", "first_lines"),
    [
        (
            "<header style='position: sticky; top: 0'><a href=#>Home</a></header>",
            ["link Home [1]"],
        ),
        ("<iframe style='height: 200px' srcdoc='<p>Text</p><a href=x>Ad</a>'></iframe>", []),
        (
            """<style>body { margin: 0; display: flex } #d { flex: 1; height: 600px;
            overflow: auto }</style><nav><a href=#>Inbox</a></nav>""",
            ["link Inbox [1]"],
        ),
    ],
    ids=["sticky header", "frame", "menu beside a box"],
)
def test_scrolling_shows_the_rest_of_a_long_page(
    start: str, first_lines: list[str], show: Show
) -> None:
    session = show(f"{start}<div id=d></div>")
    session.evaluate(
        "() => { d.innerHTML = Array.from({length: 800}, (_, i) => `<p>Row ${i}</p>` +"
        " `<p>Some text of row ${i}</p>`).join('') }"
    )
    top = session.observe()
    assert top.truncated and "Row 0" in top.text
    session.evaluate("() => { scrollTo(0, 20_000); d.scrollTo(0, 20_000) }")
    observation = session.observe()
    lines = observation.text.splitlines()
    assert observation.truncated and lines[: len(first_lines)] == first_lines
    assert "Row 0" not in lines and "Row 300" in lines and "Text" not in lines


LONG_OPTIONS = """<h1>Title</h1><select id=s aria-label=S></select><button>Save</button><script>
s.innerHTML = Array.from({length: 100}, (_, i) => `<option>Option ${i} ${"long ".repeat(40)}${i}`)
.join("")</script>"""


@pytest.mark.browser
def test_long_options_are_shortened_and_chosen(show: Show) -> None:
    session = show(LONG_OPTIONS)
    observation = session.observe()
    assert not observation.truncated and observation.text.endswith("\nbutton Save [2]")
    name = observation.text.split(", ")[7]
    assert name.startswith("Option 7 long") and name.endswith("…") and len(name) <= 100
    assert session.act(Action(ActionKind.SELECT, "1", name)) is None
    assert session.evaluate("s.selectedIndex") == 7
    assert session.observe().elements["1"].value == name


@pytest.mark.browser
def test_value_of_a_multiple_selection_is_cut(show: Show) -> None:
    session = show(LONG_OPTIONS)
    session.evaluate(
        "() => { s.multiple = true; for (const o of s.options) o.selected = true; s.size = 1;"
        " [...s.options].slice(50).forEach((o) => { o.hidden = true }) }"
    )
    observation = session.observe()
    assert not observation.truncated and observation.text.endswith("\nbutton Save [2]")
    assert len(observation.elements["1"].value) == 2001


@pytest.mark.browser
def test_xhtml_controls_are_observed_and_used(session: Session, site: Any) -> None:
    site.pages["/page.xhtml"] = """<html xmlns="http://www.w3.org/1999/xhtml"><head><title>T</title>
    </head><body><label>Name <input/></label><select title="S"><option>One</option><option>Two
    </option></select><button>Go</button><a href="/x">Link<br/>text</a><details><summary>More
    </summary><p>closed</p></details><img alt="Photo"/></body></html>"""
    session.goto(f"http://{site.origin}/page.xhtml")
    assert session.act(Action(ActionKind.WAIT)) is None
    assert session.observe().text.splitlines() == [
        *("textbox Name [1]", "select S [2] = One (One, Two)", "button Go [3]"),
        *("link Link text [4]", "button More [5]", "Photo"),
    ]
    assert session.act(Action(ActionKind.SELECT, "2", "Two")) is None
    assert session.act(Action(ActionKind.TYPE, "1", "Ann")) is None
    assert "is a dropdown" in (session.act(Action(ActionKind.CLICK, "2")) or "")
    observation = session.observe()
    assert [observation.elements[i].value for i in ("1", "2")] == ["Ann", "Two"]


@pytest.mark.browser
def test_frames_of_a_frameset_are_observed_and_used(session: Session, site: Any) -> None:
    site.add_page("<button onclick='this.textContent = \"Pressed\"'>Menu</button>", "/menu")
    site.add_page("<p style='height: 3000px'>Content</p>", "/content")
    site.pages["/"] = "<frameset cols='50%,50%'><frame src=/menu><frame src=/content></frameset>"
    session.goto(f"http://{site.origin}/")
    assert session.observe().text == "button Menu [1]\nContent"
    assert session.act(Action(ActionKind.CLICK, "1")) is None
    assert session.observe().text == "button Pressed [1]\nContent"
    assert session.act(Action(ActionKind.SCROLL_DOWN)) is None
    assert session.evaluate("frames[1].scrollY") > 0


@pytest.mark.browser
def test_large_hidden_page_is_truncated(show: Show) -> None:
    session = show("<div id=d></div><p>end</p>")
    session.evaluate("() => { d.innerHTML = '<span></span>'.repeat(300000); }")
    assert session.observe().truncated


@pytest.mark.browser
def test_page_that_is_cut_above_the_viewport_has_no_text(
    show: Show, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its top would contradict the note, because scrolling does not change it."""
    monkeypatch.setattr(dom_walk, "_MAX_NODES", 1500)
    session = show("<div id=d></div>")
    session.evaluate("() => { d.innerHTML = '<p>Some more of the page</p>'.repeat(2000) }")
    assert session.observe().text.startswith("Some more")
    session.evaluate("() => { scrollTo(0, 1e6) }")
    observation = session.observe()
    assert observation.truncated and observation.text.splitlines() == [
        "[cut here: about 505 more elements left out; scroll to see other parts]"
    ]


@pytest.mark.browser
def test_observe_works_during_navigation(show: Show, site: Any) -> None:
    site.add_page("<p>arrived</p>", "/next")
    session = show("<p>here</p>")
    session.evaluate("() => { setTimeout(() => { location.href = '/next' }, 0); }")
    texts = [session.observe().text]
    deadline = time.monotonic() + 60.0
    while texts[-1] != "arrived" and time.monotonic() < deadline:
        texts.append(session.observe().text)
    assert texts[-1] == "arrived" and set(texts) <= {"here", "arrived", ""}


@pytest.mark.browser
def test_dialogs_are_answered_and_reported(show: Show) -> None:
    session = show("<p id=p>x</p>")
    session.evaluate("() => { alert('Saved.'); p.textContent = String(confirm('Sure?')); }")
    observation = session.observe()
    assert observation.error == "the page said: Saved.; the page said: Sure?"
    assert observation.text == "true"
    assert session.observe().error is None


@pytest.mark.browser
def test_blank_tab_observation_is_empty(pool: BrowserPool) -> None:
    """A blank tab contains none of our scripts."""
    with pool.session(origins=["127.0.0.1:1"]) as session:
        assert session.observe().text == ""


def test_line_formats_entries_and_render_truncates() -> None:
    box = [0, 0, 1, 1]
    entries = [
        {"text": "above", "above": True},
        {"id": "7", "kind": "button", "name": "", "box": box},
        {"id": "8", "kind": "select", "name": "S", "value": "a", "options": ["a", "b"], "box": box},
    ]
    assert [line(e) for e in entries] == ["above", "button [7]", "select S [8] = a (a, b)"]
    assert render(entries, 1000)[2]
    assert line({"text": "button Pay [7]"}) == "text button Pay [7]"
    assert render([{"text": "button [7]"}] * 2, 16) == (["text button [7]"], [], False)
    assert render([{"text": "above", "above": True}] * 2, 10) == ([], [], False)
    # A first line that does not fit is cut; elements in view can precede those above.
    assert render([{"text": "long text"}, {"text": "b"}], 6) == (["long…"], [], False)
    assert render([{"text": "a"}, {"text": "above", "above": True}, {"text": "b"}], 5) == (
        ["a", "b"],
        [],
        False,
    )
    lines, shown, complete = render(entries, 20)
    assert lines == ["button [7]"] and [e["id"] for e in shown] == ["7"] and not complete


@pytest.mark.browser
@pytest.mark.parametrize(
    "script",
    [
        "JSON.stringify = () => 'poison'",
        "JSON.stringify = () => ''",
        "JSON.stringify = () => '{}'",
        "JSON.stringify = () => '[7]'",
        "JSON.stringify = () => 42",
        "JSON.stringify = () => '['.repeat(1e5)",
        "JSON.stringify = () => new Date(8.64e15)",
        "Object.prototype.toJSON = () => 'poison'",
        "JSON.stringify = () => '"
        '{"entries": [{}], "title": "", "hasStopped": false, '
        '"total": 1, "numVisited": 1, "lastId": 0}'
        "'",
        "JSON.stringify = () => '"
        '{"entries": [{"id": "1", "kind": "button", "name": "A", "box": [null, 0, 1, 1]}], '
        '"title": "", "hasStopped": false, "total": 1, "numVisited": 1, "lastId": 1}'
        "'",
        "Array.prototype.map = () => 'poison'",
        "Element.prototype.getBoundingClientRect = () => { throw Error('poison') }",
    ],
)
def test_broken_builtins_raise_infra_error(script: str, show: Show) -> None:
    session = show(f"<p>x</p><script>{script}</script>")
    with pytest.raises(
        InfraError, match=r"the page broke a script|the browser failed: Page\.evaluate"
    ):
        session.observe()
