"""Tests of all action kinds on live pages, and of the errors of refused actions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.async_api import Page

from webagent_jax.browser import BrowserPool, Session, keys
from webagent_jax.config import BrowserConfig
from webagent_jax.types import Action, ActionKind, InfraError, Observation

pytestmark = pytest.mark.browser
Show = Callable[[str], Session]


def act(
    session: Session, kind: ActionKind, name: str | None = None, value: str | None = None
) -> str | None:
    """Act on the element of this name in a new observation."""
    element_id = None if name is None else find_id(session.observe(), name)
    return session.act(Action(kind, element_id, value))


def find_id(observation: Observation, name: str) -> str:
    return next(i for i, element in observation.elements.items() if element.name == name)


def test_click_right_click_and_hover_fire_events(show: Show) -> None:
    session = show(
        """<button onclick="p.textContent += 'click '">A</button>
        <button oncontextmenu="p.textContent += 'menu '">B</button>
        <button onmouseenter="p.textContent += 'hover '">C</button><p id=p></p>"""
    )
    assert act(session, ActionKind.CLICK, "A") is None
    assert act(session, ActionKind.RIGHT_CLICK, "B") is None
    assert act(session, ActionKind.HOVER, "C") is None
    assert session.observe().text.endswith("click menu hover")


def test_click_scrolls_to_element(show: Show) -> None:
    session = show(
        """<p style='height:3000px'>top</p><button onclick='p.hidden = 0'>Far</button>
        <p id=p hidden>ok"""
    )
    assert act(session, ActionKind.CLICK, "Far") is None
    assert session.observe().text.endswith("ok")


LIST_IN_HIDDEN_BOX = """<div id=box style='height:300px; overflow:hidden'>
    <p style='height:100px'>head</p><div id=list style='height:150px; overflow:auto'>
    <p style='height:900px'>tall</p>
    <button onclick='this.textContent = "done"'>In list</button></div>
    <p style='height:600px'>also tall</p>
    <button onclick='this.textContent = "clipped"'>Below</button></div>"""


def test_click_does_not_scroll_boxes_that_no_user_can_scroll(show: Show) -> None:
    session = show(f"<style>body {{ overflow: hidden }}</style>{LIST_IN_HIDDEN_BOX}")
    assert act(session, ActionKind.CLICK, "In list") is None
    assert "button done" in session.observe().text
    offsets = "[list.scrollTop > 0, box.scrollTop, document.documentElement.scrollTop]"
    assert session.evaluate(offsets) == [True, 0, 0]


def test_scroll_up_undoes_the_scrolling_of_a_click_on_a_clipped_element(show: Show) -> None:
    session = show(LIST_IN_HIDDEN_BOX)
    assert act(session, ActionKind.CLICK, "Below") is None
    observation = session.observe()
    assert session.evaluate("box.scrollTop") > 0
    # Nothing is left out, although no user can scroll the box back.
    assert [e.name for e in observation.elements.values()] == ["In list", "clipped"]
    while session.evaluate("box.scrollTop") > 0:
        assert act(session, ActionKind.SCROLL_UP) is None
    assert act(session, ActionKind.SCROLL_UP) == "the page does not scroll further up"


def test_refused_click_restores_scrolled_boxes(show: Show) -> None:
    session = show(
        f"{LIST_IN_HIDDEN_BOX}<div style='position:fixed; inset:0; background:#fff8'>Wait</div>"
    )
    error = act(session, ActionKind.CLICK, "Below")
    assert error == "element 2 is outside the visible part of the page"
    assert session.evaluate("box.scrollTop") == 0


ITEMS_IN_PADDED_BOX = """<style>#list {{ height:150px; overflow:{overflow} }}
    #list > button {{ display:block; height:30px; width:100px }}</style>
    <main style='padding-top:60px'><div id=list></div></main><script>
    for (let i = 1; i <= 20; i++) {{
      const item = document.createElement("button");
      item.textContent = `Item ${{i}}`;
      item.onclick = () => {{ document.title = i }};
      list.append(item);
    }}</script>"""


@pytest.mark.parametrize("overflow", ["auto", "hidden"])
@pytest.mark.parametrize("border", [0, 40])
def test_click_hits_element_scrolled_out_of_inner_box(
    overflow: str, border: int, show: Show
) -> None:
    """The box of the element is over an ancestor, so a click there would hit that."""
    session = show(ITEMS_IN_PADDED_BOX.format(overflow=overflow))
    session.evaluate("(border) => { list.style.border = `${border}px solid` }", border)
    for number in (6, 20, 18, 15, 1):
        assert act(session, ActionKind.CLICK, f"Item {number}") is None
        assert session.observe().title == str(number)


@pytest.mark.parametrize(
    "element",
    [
        "<a href=#x><div style='float:left'>Card</div></a>",
        "<div style='position:relative; width:200px; height:50px'><a href=#x>"
        "<div style='position:absolute; inset:0'>Card</div></a></div>",
        "<a href=#x style='display:contents'><div>Card</div></a>",
        "<button style='display:contents'><div>Card</div></button>",
    ],
)
@pytest.mark.parametrize("offset", [0, 3000])
def test_click_hits_content_of_element_without_box(element: str, offset: int, show: Show) -> None:
    session = show(
        f"""<div style='height:{offset}px'></div><div id=box>{element}</div>
        <script>box.firstChild.onclick = () => {{ document.title = "clicked" }}</script>"""
    )
    observation = session.observe()
    assert observation.elements["1"].box[2] > 20
    assert session.act(Action(ActionKind.CLICK, find_id(observation, "Card"))) is None
    assert session.observe().title == "clicked"


def test_click_refuses_hidden_element_without_box(show: Show) -> None:
    session = show("<div id=box><a href=#x style='display:contents'><div>Card</div></a></div>")
    card_id = find_id(session.observe(), "Card")
    session.evaluate("() => { box.style.display = 'none' }")
    error = session.act(Action(ActionKind.CLICK, card_id))
    assert error == f"element {card_id} is hidden now"


def test_scroll_skips_page_that_no_user_can_scroll(show: Show) -> None:
    session = show(
        """<style>body { overflow: hidden }</style>
        <div id=d style='height:90px; overflow:auto'><p style='height:900px'>x</p></div>
        <p style='height:2000px'>clipped</p>"""
    )
    assert act(session, ActionKind.SCROLL_DOWN) is None
    assert session.evaluate("[scrollY, d.scrollTop > 0]") == [0, True]


def test_focus_does_not_scroll_boxes_that_no_user_can_scroll(show: Show) -> None:
    session = show(
        """<div id=box style='height:60px; overflow:hidden'><p style='height:300px'>x</p>
        <input aria-label=A><select aria-label=B><option>1<option>2</select></div>"""
    )
    assert act(session, ActionKind.SELECT, "B", "2") is None
    assert act(session, ActionKind.PRESS, "A", "Home") is None
    assert session.evaluate("box.scrollTop") == 0


def test_click_hits_svg_path_with_empty_center(show: Show) -> None:
    session = show(
        """<svg width=200 height=200><path d="M0 0 L200 0 L200 10 L10 10 L10 200 L0 200 Z" fill=red
        onclick="document.title = 'hit'"/></svg>"""
    )
    assert session.act(Action(ActionKind.CLICK, next(iter(session.observe().elements)))) is None
    assert session.observe().title == "hit"


def test_click_works_in_frame(show: Show) -> None:
    session = show(
        """<p style='height:900px'>x</p><iframe style='margin:50px' srcdoc="<button
        onclick='parent.document.title = 1'>In</button>"></iframe>"""
    )
    assert act(session, ActionKind.CLICK, "In") is None
    assert session.observe().title == "1"


def test_click_scrolls_to_element_deep_in_frame(show: Show) -> None:
    session = show(
        """<iframe style='height:3000px' srcdoc="<p style='height:2500px'>x</p><button
        onclick='parent.document.title = 1'>In</button>"></iframe>"""
    )
    assert act(session, ActionKind.CLICK, "In") is None
    assert session.observe().title == "1"


@pytest.mark.parametrize("style", ["padding: 20px 40px", "border: 9px solid; transform: scale(2)"])
def test_click_hits_small_element_in_padded_or_scaled_frame(style: str, show: Show) -> None:
    session = show(
        f"""<iframe style='transform-origin: 0 0; {style}' srcdoc="<style>* {{ margin: 0 }}
        b {{ display: block; height: 12px; width: 20px; font-size: 9px; margin-left: 60px }}</style>
        <b onclick='parent.document.title = 1'>One</b><b onclick='parent.document.title = 2'>Two</b>
        <b onclick='parent.document.title = 3'>Three</b>"></iframe>"""
    )
    for number, name in enumerate(("One", "Two", "Three"), start=1):
        assert act(session, ActionKind.CLICK, name) is None
        assert session.observe().title == str(number)


@pytest.mark.parametrize("is_nested", [False, True])
def test_click_refusal_names_element_covering_frame(is_nested: bool, show: Show, site: Any) -> None:
    site.add_page("<button onclick='top.document.title = 1'>In</button>", "/frame")
    site.add_page("<iframe src=/frame></iframe>", "/outer")
    session = show(
        f"""<iframe src={"/outer" if is_nested else "/frame"}></iframe>
        <div id=d style='position:fixed; inset:0' onclick='document.title = 2'>Shade</div>"""
    )
    error = act(session, ActionKind.CLICK, "In")
    assert error == 'the frame of the element is covered by element 2 "Shade"'
    assert session.observe().title == "page"
    session.evaluate("() => { d.hidden = true }")
    assert act(session, ActionKind.CLICK, "In") is None
    assert session.observe().title == "1"


DISCARD = {"removed": "f.remove()", "navigated": "f.srcdoc = '<p>other</p>'"}


@pytest.mark.parametrize("script", DISCARD.values(), ids=DISCARD)
def test_actions_on_elements_of_discarded_frame_are_refused(script: str, show: Show) -> None:
    session = show(
        """<iframe id=f srcdoc="<button>Go</button><input aria-label=Name>
        <select aria-label=Pick><option>A<option>B</select>"></iframe>"""
    )
    observation = session.observe()
    session.evaluate(f"() => {{ {script} }}")
    session.settle()
    for kind, name, value in (
        (ActionKind.CLICK, "Go", None),
        (ActionKind.TYPE, "Name", "x"),
        (ActionKind.PRESS_ENTER, "Name", None),
        (ActionKind.PRESS, "Name", "a"),
        (ActionKind.SELECT, "Pick", "B"),
        (ActionKind.SCROLL_DOWN, "Go", None),
    ):
        element_id = find_id(observation, name)
        error = session.act(Action(kind, element_id, value))
        assert error == f"element {element_id} is not on the page any more"


def test_type_stops_if_frame_of_field_disappears(show: Show) -> None:
    session = show(
        """<iframe srcdoc="<input aria-label=A oninput='frameElement.remove()'>"></iframe>
        <script>document.onkeydown = ({key}) => { document.title += key }</script>"""
    )
    error = act(session, ActionKind.TYPE, "A", "1234")
    assert error == "element 1 is not on the page any more"
    assert session.observe().title == "page"


def test_click_refusal_states_reason(show: Show) -> None:
    session = show(
        """<button id=b>Under</button><button id=c>Gone</button><button id=d>Off</button>
        <button id=e>Hid</button><div id=over></div>"""
    )
    ids = {name: find_id(session.observe(), name) for name in ("Under", "Gone", "Off", "Hid")}
    session.evaluate(
        """() => { c.remove(); d.disabled = 1; e.style.display = 'none'; over.innerText = 'Wait!';
        over.style = 'position:fixed; inset:0; background:white'; }"""
    )

    def click(element_id: str | None) -> str | None:
        return session.act(Action(ActionKind.CLICK, element_id))

    assert click(ids["Under"]) == f'element {ids["Under"]} is covered by <div> "Wait!"'
    assert click(ids["Gone"]) == f"element {ids['Gone']} is not on the page any more"
    assert click(ids["Off"]) == f"element {ids['Off']} is disabled"
    assert click(ids["Hid"]) == f"element {ids['Hid']} is hidden now"
    assert click("99") == "there is no element 99"
    assert click("x; y") == "there is no element x; y"
    assert click(None) == "Click needs an element"


def test_type_replaces_value_and_fires_events(show: Show) -> None:
    session = show(
        """<label>Name <input id=i value="old"></label><p id=p></p>
        <script>for (const t of ["keydown", "keyup", "input"])
          i.addEventListener(t, (e) => { p.textContent += `${t}:${e.target.value} `; });
        i.addEventListener("change", () => { p.textContent += "change"; });</script>"""
    )
    assert act(session, ActionKind.TYPE, "Name", "Ann") is None
    assert session.evaluate("i.value") == "Ann"
    assert session.evaluate("p.textContent") == "input:An keydown:An input:Ann keyup:Ann "
    session.evaluate("i.blur()")
    assert session.evaluate("p.textContent").endswith("change")
    assert act(session, ActionKind.TYPE, "Name", "") is None
    assert session.evaluate("i.value") == ""


# Renders the field again for each change, as pages do that rebuild all of their content.
RENDERED_FIELD = """<div id=box></div><script>
let text = "";
const draw = () => {
  box.innerHTML = `<FIELD><p>${text.length} characters</p>`;
  field.oninput = () => { text = field.value ?? field.textContent; draw(); FOCUS };
};
draw();
document.onkeydown = ({target, key}) => { if (target === document.body) document.title += key };
</script>"""


@pytest.mark.parametrize(
    ("field", "focus"),
    [
        ("input id=field aria-label=A value='${text}'", ""),
        ("input id=field aria-label=A value='${text}'", "field.focus()"),
        ("input id=field aria-label=A type=number value='${text}'", "field.focus()"),
        ("textarea id=field aria-label=A>${text}</textarea", ""),
        ("div id=field aria-label=A contenteditable>${text}</div", "field.focus()"),
        ("input id=field aria-label=A", ""),  # the page keeps the text only in its own state
    ],
)
def test_type_continues_in_field_that_is_rendered_again(field: str, focus: str, show: Show) -> None:
    session = show(RENDERED_FIELD.replace("FIELD", field).replace("FOCUS", focus))
    assert act(session, ActionKind.TYPE, "A", "1234") is None
    assert session.evaluate("text") == "1234"
    assert session.observe().title == "page"  # no key went to the page itself


def test_search_presses_enter_in_field_that_is_rendered_again(show: Show) -> None:
    session = show(
        RENDERED_FIELD.replace("FIELD", "input id=field aria-label=A value='${text}'").replace(
            "FOCUS", "field.onkeydown = ({key}) => { if (key === 'Enter') document.title = text }"
        )
    )
    assert act(session, ActionKind.SEARCH, "A", "1234") is None
    assert session.observe().title == "1234"


def test_type_stops_if_field_disappears(show: Show) -> None:
    session = show(
        """<input aria-label=A oninput="this.remove()"><script>
        document.onkeydown = ({key}) => { document.title += key }</script>"""
    )
    error = act(session, ActionKind.TYPE, "A", "1234")
    assert error == "element 1 is not on the page any more"
    assert session.observe().title == "page"


def test_type_follows_focus_that_page_moves(show: Show) -> None:
    session = show("""<input aria-label=A id=a oninput="b.focus()"><input aria-label=B id=b>""")
    assert act(session, ActionKind.TYPE, "A", "12") is None
    assert session.evaluate("[a.value, b.value]") == ["1", "2"]


def test_type_supports_all_field_kinds(show: Show) -> None:
    session = show(
        """<textarea aria-label=area>old</textarea><div contenteditable aria-label=rich>old</div>
        <input type=date aria-label=day><input type=number aria-label=number>
        <input type=range aria-label=range max=200><input readonly aria-label=fixed>
        <button>No field</button>"""
    )
    for name, text in (
        ("area", "two\nlines\n"),
        ("rich", "Grüße 東京"),
        ("day", "2024-12-31"),
        ("number", "42"),
        ("range", "150"),
    ):
        assert act(session, ActionKind.TYPE, name, text) is None
    values = {e.name: e.value for e in session.observe().elements.values()}
    assert values["area"] == "two lines" and values["rich"] == "Grüße 東京"
    assert values["day"] == "2024-12-31" and values["number"] == "42" and values["range"] == "150"
    assert "in the form 2024-12-31" in (act(session, ActionKind.TYPE, "day", "tomorrow") or "")
    assert (act(session, ActionKind.TYPE, "fixed", "x") or "").endswith("is read-only")
    assert (act(session, ActionKind.TYPE, "No field", "x") or "").endswith("is not a text field")


def test_search_and_press_enter_submit_form(show: Show, site: Any) -> None:
    form = "<form action=/found><input name=q aria-label=Query></form>"
    site.add_page("<p>found</p>", "/found")
    session = show(form)
    assert act(session, ActionKind.SEARCH, "Query", "ab c") is None
    assert session.observe().text == "found" and session.observe().url.endswith("/found?q=ab+c")
    session.goto(f"http://{site.origin}/")
    assert act(session, ActionKind.TYPE, "Query", "d") is None
    assert act(session, ActionKind.PRESS_ENTER) is None
    assert session.observe().url.endswith("/found?q=d")


def test_select_chooses_option_by_text(show: Show) -> None:
    session = show(
        """<select aria-label=S onchange="p.textContent = this.value"><option>Peruvian<option>Peru
        <option disabled>Cuba</select><p id=p></p><button>B</button>"""
    )
    assert act(session, ActionKind.SELECT, "S", "peru") is None
    assert session.evaluate("p.textContent") == "Peru"
    assert act(session, ActionKind.SELECT, "S", "vian") is None
    assert session.evaluate("p.textContent") == "Peruvian"
    assert act(session, ActionKind.SELECT, "S", "Chile") == (
        'element 1 has no option "Chile"; it has: Peruvian, Peru'
    )
    assert act(session, ActionKind.SELECT, "S", "Cuba") == (
        'the option "Cuba" of element 1 is disabled'
    )
    assert act(session, ActionKind.SELECT, "B", "x") == "element 2 is not a dropdown"
    assert "Select Dropdown Option" in (act(session, ActionKind.CLICK, "S") or "")


def test_select_takes_no_hidden_or_disabled_option(show: Show) -> None:
    session = show(
        """<select aria-label=S><option hidden selected>Choose<option style="display:none">Chile
        <option>Chile Verde<option disabled>Cuba<option>Cuba Libre
        <optgroup label=Old disabled><option>Peru</optgroup></select>"""
    )
    assert session.observe().text == ("select S [1] = Choose (Chile Verde, Cuba, Cuba Libre, Peru)")
    for name in ("Cuba", "Peru"):
        assert act(session, ActionKind.SELECT, "S", name) == (
            f'the option "{name}" of element 1 is disabled'
        )
    assert act(session, ActionKind.SELECT, "S", "Chile") is None
    assert session.observe().elements["1"].value == "Chile Verde"
    assert act(session, ActionKind.SELECT, "S", "choose") == (
        'element 1 has no option "choose"; it has: Chile Verde, Cuba Libre'
    )


def test_scroll_moves_page_until_its_end(show: Show) -> None:
    session = show("<p style='height:1000px'>x</p>")
    assert act(session, ActionKind.SCROLL_DOWN) is None
    assert session.evaluate("scrollY") == pytest.approx(400, abs=1)
    assert act(session, ActionKind.SCROLL_DOWN) is None
    assert act(session, ActionKind.SCROLL_DOWN) == "the page does not scroll further down"
    assert act(session, ActionKind.SCROLL_UP) is None


BOX_IN_SHADOW = """<div id=host></div><script>
    host.attachShadow({ mode: "open" }).innerHTML =
      "<div id=box style='height:200px; overflow:auto'><slot></slot></div>";
    host.innerHTML = "<p style='height:900px'><button>In slot</button></p>";
    const scrolled = () => host.shadowRoot.getElementById("box").scrollTop;</script>"""
BOX_IN_FRAME = """<iframe id=frame srcdoc="<p style='height:900px'><button>In slot</button></p>">
    </iframe><script>const scrolled = () => frame.contentWindow.scrollY</script>"""


@pytest.mark.parametrize("body", [BOX_IN_SHADOW, BOX_IN_FRAME], ids=["shadow", "frame"])
@pytest.mark.parametrize("name", [None, "In slot"])
def test_scroll_moves_box_in_shadow_root_or_frame(name: str | None, body: str, show: Show) -> None:
    session = show(body)
    assert act(session, ActionKind.SCROLL_DOWN, name) is None
    assert session.evaluate("scrolled()") > 0


def test_scroll_at_element_of_a_short_frame_moves_page(show: Show) -> None:
    session = show("<iframe srcdoc='<button>A</button>'></iframe><p style='height:3000px'>tall</p>")
    assert act(session, ActionKind.SCROLL_DOWN, "A") is None
    assert session.evaluate("scrollY") > 0


@pytest.mark.parametrize(
    ("text", "lines"),
    [("hello\nworld!", ["hello", "world!"]), ("a\nb", ["a", "b"]), ("one", ["one"])],
)
def test_type_writes_lines_into_rich_text(text: str, lines: list[str], show: Show) -> None:
    session = show("<div contenteditable aria-label=Text><p>old text</p></div>")
    assert act(session, ActionKind.TYPE, "Text", text) is None
    script = "document.querySelector('[contenteditable]').innerText.split(/\\n+/)"
    assert session.evaluate(script) == lines


# Replaces built-in functions as Prototype.js does, in the admin of Magento for one.
PROTOTYPE_JS = """<script>
Array.from = (list) => Object.assign([], list);
Element.prototype.scrollTo = function () { window.scrollTo(0, this.offsetTop) };
Element.prototype.select = () => [];
</script>"""


def test_actions_work_on_page_with_prototype_js(show: Show) -> None:
    session = show(
        f"""{PROTOTYPE_JS}<div contenteditable aria-label=Text>old</div>{LIST_IN_HIDDEN_BOX}
        <div id=d hidden style='position:fixed; inset:0; background:#fff8'>Wait</div>"""
    )
    assert act(session, ActionKind.TYPE, "Text", "new") is None
    observation = session.observe()
    assert observation.elements[find_id(observation, "Text")].value == "new"
    session.evaluate("() => { d.hidden = false }")
    assert session.act(Action(ActionKind.CLICK, find_id(observation, "Below"))) is not None
    assert session.evaluate("box.scrollTop") == 0


def test_chosen_date_is_reported_outside_its_shadow_root(show: Show) -> None:
    session = show(
        """<div id=host></div><p id=p></p><script>
        host.attachShadow({ mode: "open" }).innerHTML = "<input type=date aria-label=Day>";
        host.oninput = () => { p.textContent = "changed" }</script>"""
    )
    assert act(session, ActionKind.TYPE, "Day", "2024-12-31") is None
    assert session.observe().text.endswith("changed")


def test_scroll_moves_inner_box_of_short_page(show: Show) -> None:
    session = show(
        "<div id=d style='height:90px; overflow:auto'><p style='height:900px'>x</p></div>"
    )
    assert act(session, ActionKind.SCROLL_DOWN) is None
    assert session.evaluate("d.scrollTop") == pytest.approx(60, abs=1)


def test_back_and_forward_navigate_history(show: Show, site: Any) -> None:
    site.add_page("<p>second</p>", "/two")
    session = show("<a href=/two>Go</a>")
    assert act(session, ActionKind.GO_BACK) == "there is no page to go back to"
    assert act(session, ActionKind.CLICK, "Go") is None
    assert session.observe().text == "second"
    assert act(session, ActionKind.GO_BACK) is None
    assert session.observe().text == "link Go [1]"
    assert act(session, ActionKind.GO_FORWARD) is None
    assert session.observe().text == "second"
    assert act(session, ActionKind.GO_FORWARD) == "there is no page to go forward to"


def test_back_and_forward_navigate_history_of_a_frame(show: Show, site: Any) -> None:
    """Playwright's `go_back` waits for a navigation of the page until its timeout."""
    site.add_page("<a href=/second>Next</a>", "/first")
    site.add_page("<p>second</p>", "/second")
    session = show("<p>outer</p><iframe src=/first></iframe>")
    assert act(session, ActionKind.CLICK, "Next") is None
    assert session.observe().text == "outer\nsecond"
    assert act(session, ActionKind.GO_BACK) is None
    assert session.observe().text.startswith("outer\nlink Next")
    assert act(session, ActionKind.GO_FORWARD) is None
    assert session.observe().text == "outer\nsecond"


def test_link_opens_tab_and_switch_tab_selects_it(show: Show, site: Any) -> None:
    site.add_page("<p>second</p>", "/two", title="Two")
    session = show("<a href=/two target=_blank>Open</a>")
    assert act(session, ActionKind.CLICK, "Open") is None
    assert session.observe().text == "[tab 0] page\n[tab 1, open] Two\nsecond"
    assert act(session, ActionKind.SWITCH_TAB, value="0") is None
    assert session.observe().text == "[tab 0, open] page\n[tab 1] Two\nlink Open [1]"
    assert act(session, ActionKind.SWITCH_TAB, value="7") == (
        "there is no tab 7; tabs are numbered 0 to 1"
    )


@pytest.mark.parametrize("kind", [ActionKind.CLICK, ActionKind.SEARCH])
def test_action_that_closes_its_tab_continues_in_another(
    kind: ActionKind, show: Show, site: Any
) -> None:
    site.add_page(
        """<button onclick="window.close()">A</button>
        <input aria-label=B onkeydown="if (event.key === 'Enter') window.close()">""",
        "/popup",
    )
    session = show("<button onclick=\"window.open('/popup')\">Open</button>")
    assert act(session, ActionKind.CLICK, "Open") is None
    assert act(session, kind, "A" if kind is ActionKind.CLICK else "B", "x") is None
    assert session.observe().text == "button Open [1]"


def test_action_that_closes_the_last_tab_raises_infra_error(show: Show, site: Any) -> None:
    site.add_page("<button onclick='window.close()'>Close</button>", "/popup")
    session = show("<button onclick=\"window.open('/popup')\">Open</button>")
    assert act(session, ActionKind.CLICK, "Open") is None

    async def close_first_tab(page: Page) -> None:
        await page.context.pages[0].close()

    session.with_page(close_first_tab)
    observation = session.observe()

    def close_last_tab() -> None:
        session.act(Action(ActionKind.CLICK, find_id(observation, "Close")))
        session.observe()  # the tab may close only after the click

    with pytest.raises(InfraError, match="the page closed its last tab"):
        close_last_tab()


def test_action_after_its_tab_closed_is_refused(show: Show, site: Any) -> None:
    """Ids in the other tab are the same, but the agent has not chosen its elements."""
    site.add_page("<button>Close</button>", "/popup")
    session = show(
        """<button onclick="document.title = 'deleted'">Delete</button>
        <button onclick="window.open('/popup')">Open</button>"""
    )

    async def close_popup(page: Page) -> None:
        await page.close()

    def open_and_close_popup() -> None:
        assert act(session, ActionKind.CLICK, "Open") is None
        session.observe()
        session.with_page(close_popup)

    open_and_close_popup()
    assert session.act(Action(ActionKind.CLICK, "1")) == "the tab has closed"
    observation = session.observe()
    assert (observation.title, len(observation.elements)) == ("page", 2)
    assert session.act(Action(ActionKind.CLICK, "1")) is None
    assert session.observe().title == "deleted"
    open_and_close_popup()
    assert session.act(Action(ActionKind.SWITCH_TAB, None, "0")) is None
    open_and_close_popup()
    assert session.act(Action(ActionKind.GOTO, None, "/popup")) is None
    assert session.observe().text == "button Close [1]"


def test_action_after_a_tab_opened_is_refused(show: Show, site: Any) -> None:
    """Ids in the new tab can be the same, but the agent has not chosen its elements."""
    url = site.add_page(
        """<button onclick="document.title = 'deleted'">Delete</button>""", "/popup"
    )
    session = show("<button>Open</button>")

    async def open_popup(page: Page) -> None:
        await (await page.context.new_page()).goto(url)

    session.observe()
    session.with_page(open_popup)
    for kind, element_id in ((ActionKind.CLICK, "1"), (ActionKind.PRESS_ENTER, None)):
        assert session.act(Action(kind, element_id)) == "a new tab has opened"
    observation = session.observe()
    assert (observation.title, observation.text.splitlines()[-1]) == ("page", "button Delete [1]")
    assert session.act(Action(ActionKind.CLICK, "1")) is None
    assert session.observe().title == "deleted"
    # Switch Tab, Goto and the methods of the session do not refer to the observed tab.
    session.with_page(open_popup)
    assert session.act(Action(ActionKind.SWITCH_TAB, None, "0")) is None
    assert session.act(Action(ActionKind.SCROLL_DOWN)) == "the page does not scroll further down"
    session.observe()
    session.with_page(open_popup)
    assert session.act(Action(ActionKind.GOTO, None, "/")) is None
    session.observe()
    session.open_tab(url)
    assert session.act(Action(ActionKind.SCROLL_DOWN)) == "the page does not scroll further down"


SLOW_TABS = {
    "link": "<a href=/slow target=_blank>Open</a>",
    "form": "<form action=/slow target=_blank><button>Open</button></form>",
    "script": "<button onclick=\"window.open('/slow')\">Open</button>",
}


@pytest.mark.parametrize("body", SLOW_TABS.values(), ids=SLOW_TABS)
def test_click_waits_for_slow_server_of_new_tab(body: str, site: Any) -> None:
    script = "<script>setTimeout(() => { p.textContent = 'slow page' }, 300)</script>"
    site.add_page(f"<p id=p>early</p>{script}", "/slow")
    site.delays["/slow"] = 3.0
    with (
        BrowserPool(BrowserConfig(settle_timeout=0.5)) as pool,
        pool.session(origins=[site.origin]) as session,
    ):
        session.goto(site.add_page(body))
        assert act(session, ActionKind.CLICK, "Open") is None
        assert session.observe().text.endswith("slow page")


def test_tab_without_answer_is_reported(site: Any) -> None:
    site.delays["/never"] = 30
    with (
        BrowserPool(BrowserConfig(settle_timeout=0.5, navigation_timeout=4.0)) as pool,
        pool.session(origins=[site.origin]) as session,
    ):
        session.goto(site.add_page("<a href=/never target=_blank>Open</a>"))
        assert act(session, ActionKind.CLICK, "Open") is None
        observation = session.observe()
        assert observation.error == "the next page did not answer in 4 s"
        assert observation.text == "link Open [1]"


def test_click_waits_for_new_tab_unless_prevented(show: Show, site: Any) -> None:
    site.add_page("<p>second</p>", "/two")
    session = show(
        """<a href=/two target=_blank onclick="p.textContent = 'here'; return false">No</a>
        <button onclick="window.open('/two')">Yes</button><p id=p></p>"""
    )
    assert act(session, ActionKind.CLICK, "No") is None
    assert session.observe().text.endswith("here")
    assert act(session, ActionKind.CLICK, "Yes") is None
    assert session.observe().text.endswith("second")


def test_exit_and_wait_do_not_change_page(show: Show) -> None:
    session = show("<p>still</p>")
    assert act(session, ActionKind.EXIT, value="answer") is None
    assert act(session, ActionKind.WAIT) is None
    assert session.observe().text == "still"


def test_click_continues_after_alert(show: Show) -> None:
    session = show("<button onclick=\"alert('Hello'); p.textContent = 'on'\">A</button><p id=p>")
    assert act(session, ActionKind.CLICK, "A") is None
    observation = session.observe()
    assert observation.error == "the page said: Hello" and observation.text.endswith("on")


@pytest.mark.parametrize(
    ("name", "script"),
    [
        ("a slow navigation", "location.href = '/slow'"),
        ("a slow request", "fetch('/slow').then((r) => r.text()).then((t) => p.innerHTML = t)"),
        ("a short timer", "setTimeout(show, 300)"),
        ("nested timers", "const t = setTimeout; t(() => t(() => t(show, 99), 99), 99)"),
        ("frames", "const f = requestAnimationFrame; f(() => f(() => f(show)))"),
    ],
)
def test_action_waits_for_page_changes(name: str, script: str, show: Show, site: Any) -> None:
    site.add_page("<p>slow page</p>", "/slow")
    site.delays["/slow"] = 0.7
    session = show(
        f"""<button onclick="{script}">A</button><p id=p></p>
        <script>const show = () => {{ p.textContent = 'slow page' }}</script>"""
    )
    assert act(session, ActionKind.CLICK, "A") is None
    assert session.observe().text.endswith("slow page")


@pytest.mark.parametrize(
    "script",
    [
        "setTimeout(show, 300)",
        "let n = 0; const f = () => { p.title = n; n++ < 40 ? setTimeout(f, 5) : show() }; f()",
        "p.style.transition = 'opacity 0.3s'; p.style.opacity = 0.5; p.ontransitionend = show",
    ],
)
def test_action_waits_for_changes_in_a_frame(script: str, show: Show, site: Any) -> None:
    site.add_page(
        f"""<button onclick="{script}">A</button><p id=p>early</p>
        <script>const show = () => {{ p.textContent = 'late' }}</script>""",
        "/frame",
    )
    session = show("<iframe src=/frame></iframe>")
    assert act(session, ActionKind.CLICK, "A") is None
    assert session.observe().text.endswith("late")


def test_action_waits_for_changes_in_a_frame_with_prototype_js(show: Show, site: Any) -> None:
    site.add_page("<button onclick='setTimeout(() => { this.innerText = 1 }, 300)'>A", "/frame")
    session = show(f"<iframe src=/frame></iframe>{PROTOTYPE_JS}")
    assert act(session, ActionKind.CLICK, "A") is None
    assert session.observe().text == "button 1 [1]"


def test_action_waits_for_changes_after_the_page_was_never_quiet(show: Show) -> None:
    session = show(
        """<button onclick="n = 0; f()">A</button><p id=p>early</p><script>let n;
        const f = () => { p.title = n; n++ < 40 ? setTimeout(f, 5) : p.textContent = 'late' };
        </script>"""
    )
    session.evaluate("() => { window.changes = setInterval(() => { p.title += 'x' }, 1) }")
    session.settle()
    session.evaluate("() => clearInterval(changes)")
    session.settle()
    assert act(session, ActionKind.CLICK, "A") is None
    assert session.observe().text.endswith("late")


@pytest.mark.parametrize(
    "host",
    [
        """<div id=host></div><script>host.attachShadow({mode: "open"}).innerHTML =
        "<div id=inner></div>"; host.shadowRoot.firstChild.attachShadow({mode: "open"});
        const root = host.shadowRoot.firstChild.shadowRoot;</script>""",
        """<div id=host><template shadowrootmode=open></template></div>
        <script>const root = host.shadowRoot;</script>""",
    ],
    ids=["nested", "declarative"],
)
def test_action_waits_for_changes_in_a_shadow_root(host: str, show: Show) -> None:
    session = show(
        f"""{host}<script>root.innerHTML = "<button>A</button><p>early</p>";
        const p = root.querySelector("p");
        root.querySelector("button").onclick = () => {{
          let n = 0;
          const f = () => {{
            p.title = n;
            n++ < 40 ? setTimeout(f, 5) : p.textContent = "late";
          }};
          f();
        }}</script>"""
    )
    assert act(session, ActionKind.CLICK, "A") is None
    assert session.observe().text.endswith("late")


def test_first_observation_waits_for_request(show: Show, site: Any) -> None:
    """The load event does not wait for a fetch."""
    site.add_page("<p>late</p>", "/slow")
    site.delays["/slow"] = 0.7
    session = show(
        "<p id=p></p><script>"
        "fetch('/slow').then((r) => r.text()).then((t) => p.innerHTML = t)</script>"
    )
    assert session.observe().text.endswith("late")


@pytest.mark.parametrize(
    "script",
    [
        "d.animate({opacity: [0, 0, 1]}, {duration: 300, easing: 'steps(2)'})",
        "const a = d.animate({opacity: [1, 0]}, {duration: 300, fill: 'both',"
        " easing: 'step-start'}); a.finish(); a.reverse()",
        "d.animate({opacity: [0, 0]}, {duration: 1, delay: 200, fill: 'backwards'})",
    ],
)
def test_action_waits_for_animation(script: str, show: Show) -> None:
    session = show(f'<button onclick="d.hidden = false; {script}">A</button><p id=d hidden>shown')
    assert act(session, ActionKind.CLICK, "A") is None
    assert session.observe().text.endswith("shown")


def test_dialog_that_fades_in_is_found_in_25_of_25_tries(show: Show) -> None:
    session = show(
        """<style>div { opacity: 0; transition: opacity .2s .1s } .shown { opacity: 1 }</style>
        <button>Open</button><script>document.querySelector('button').onclick = () => {
          document.querySelector('div')?.remove();
          const dialog = document.createElement('div');
          dialog.innerHTML = '<button>Deposit</button>';
          document.body.append(dialog);
          const frame = requestAnimationFrame;
          frame(() => frame(() => dialog.classList.add('shown')));
        }</script>"""
    )
    found = 0
    for _ in range(25):
        assert act(session, ActionKind.CLICK, "Open") is None
        found += "Deposit" in session.observe().text
    assert found == 25


@pytest.mark.parametrize(
    "script",
    [
        "d.animate({opacity: [0, 0]}, {duration: 9, iterations: Infinity})",
        "d.animate({opacity: [0, 0]}, {duration: 60000})",
        "d.animate({opacity: [0, 0]}, {duration: 300}).pause()",
        "d.animate({color: ['red', 'blue']}, {duration: 9500})",
        "(function draw() { requestAnimationFrame(draw) })()",
        "(function poll() { setTimeout(poll, 99) })()",
        "(async () => { for (;;) await new Promise(requestAnimationFrame) })()",
    ],
)
def test_quiet_ignores_endless_and_cosmetic_animations(script: str, show: Show) -> None:
    """The limit of `quiet` is far above the time that a loaded machine takes for a quiet page."""
    session = show("<p id=d>x</p>")
    session.evaluate(f"() => {{ {script} }}")
    result = session.evaluate(
        """async () => {
        const later = new Promise((resolve) => setTimeout(resolve, 9000, "not quiet"));
        return await Promise.race([__webagent.quiet(20, 10000), later]);
        }"""
    )
    assert result is False


def test_action_wait_is_bounded(site: Any) -> None:
    """A request without a response, and a page that changes constantly."""
    site.delays["/never"] = 30
    body = """<button onclick="fetch('/never'); setInterval(() => { p.textContent += 'x' }, 5)">A
        </button><p id=p></p>"""
    with (
        BrowserPool(BrowserConfig(settle_timeout=1.0)) as pool,
        pool.session(origins=[site.origin]) as session,
    ):
        session.goto(site.add_page(body))
        assert act(session, ActionKind.CLICK, "A") is None
        assert session.observe().text.endswith("x")
        assert act(session, ActionKind.CLICK, "A") is None


@pytest.mark.parametrize(
    ("words", "key"),
    [
        ("a", "a"),
        ("+", "+"),
        ("Control++", "Control++"),
        ("ctrl + a", "Control+a"),
        ("shift+TAB", "Shift+Tab"),
        ("esc", "Escape"),
        ("page down", "PageDown"),
        ("f12", "F12"),
        ("Control+Shift+Home", "Control+Shift+Home"),
    ],
)
def test_parse_key_normalizes_names(words: str, key: str) -> None:
    assert keys.parse_key(words) == key


@pytest.mark.parametrize("words", ["", "++", "+a", "Foo", "control", "a+b", "é", "F13", "9" * 5000])
def test_parse_key_rejects_unknown_keys(words: str) -> None:
    with pytest.raises(ValueError, match=r"there is no key .* keys are single characters") as error:
        keys.parse_key(words)
    assert len(str(error.value)) < 300


@pytest.mark.parametrize("words", ["Control+v", "ctrl+V", "Control+Shift+v", "shift+insert"])
def test_parse_key_rejects_paste_keys(words: str) -> None:
    with pytest.raises(ValueError, match="nothing can be pasted"):
        keys.parse_key(words)


def test_link_to_forbidden_origin_reports_error(site: Any, session: Session) -> None:
    session.goto(site.add_page("<a href='http://127.0.0.1:1/'>Out</a>"))
    assert act(session, ActionKind.CLICK, "Out") is None
    observation = session.observe()
    assert observation.text == "" and observation.error == (
        f"http://127.0.0.1:1/ is not an http address on the origins allowed here: {site.origin}"
    )
    assert session.observe().error == "the page did not load"
    assert act(session, ActionKind.GO_BACK) is None
    assert session.observe().text == "link Out [1]"


def test_error_length_is_limited(show: Show) -> None:
    session = show("<button onclick=\"alert('a'.repeat(9000))\">A</button>")
    session.observe()
    session.act(Action(ActionKind.CLICK, "1"))
    assert len(session.observe().error or "") == 1000
    session.act(Action(ActionKind.SWITCH_TAB, None, "9" * 5000))  # a number too long for int()
    assert session.act(Action(ActionKind.GOTO, None, "x:" + "9" * 5000)) is not None


def test_open_tab_and_switch_tab_change_url(site: Any, session: Session) -> None:
    first_url, second_url = site.add_page("<p>first"), site.add_page("<p>second", "/second")
    session.goto(first_url)
    session.open_tab(second_url)
    assert session.url == second_url and session.observe().text.endswith("second")
    session.switch_tab(0)
    assert session.url == first_url and session.observe().text.endswith("first")
    for index in (2, -1):
        with pytest.raises(ValueError, match="tabs are numbered 0 to 1"):
            session.switch_tab(index)
    with pytest.raises(ValueError, match="allowed here"):
        session.open_tab("file:///etc/hosts")
    session.evaluate("() => history.pushState(0, 0, '/here')")
    assert session.url.endswith("/here")


def test_take_timings_returns_and_clears_phases(show: Show) -> None:
    session = show("<button>A</button>")
    assert set(session.take_timings()) == {"load", "settle"}
    act(session, ActionKind.CLICK, "A")
    assert set(session.take_timings()) == {"observe", "act", "settle"}
    assert not session.take_timings()
