"""Tests of frames of other origins: observed and acted on like their page, in both formats."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from webagent_jax.browser import BrowserPool, Session
from webagent_jax.config import BrowserConfig
from webagent_jax.types import Action, ActionKind, Observation

ShowFrame = Callable[..., Session]

INNER = """<p>Inside</p><button onclick="this.innerText = 'Pressed'">Press</button>
<input aria-label="Name"><select aria-label="Pick"><option>Alpha<option>Beta</select>"""


@pytest.fixture(scope="module", params=["compact", "webarena_lite"])
def pool(request: pytest.FixtureRequest) -> Iterator[BrowserPool]:
    config = BrowserConfig(
        viewport_width=800,
        viewport_height=600,
        observation_format=request.param,
        data_bbox=False,
        call_timeout=60.0,
        navigation_timeout=60.0,
    )
    with BrowserPool(config) as browser_pool:
        yield browser_pool


@pytest.fixture(params=["127.0.0.1", "localhost"])
def inner_host(request: pytest.FixtureRequest, other_site: Any) -> str:
    """Return the host of the frame: another origin of the same site, or of another site."""
    return f"{request.param}:{other_site.origin.split(':')[1]}"


@pytest.fixture
def show_frame(
    site: Any, other_site: Any, inner_host: str, pool: BrowserPool
) -> Iterator[ShowFrame]:
    """Return a function that opens a page around a frame with the body `inner`."""
    with pool.session(origins=[site.origin, inner_host]) as session:

        def open_page(inner: str = INNER, style: str = "", suffix: str = "") -> Session:
            other_site.add_page(inner)
            frame = f"<iframe title='F' style='{style}' src='http://{inner_host}/'></iframe>"
            session.goto(
                site.add_page(f"<button>First</button>{frame}<button>Last</button>{suffix}")
            )
            return session

        yield open_page


def ids_by_name(observation: Observation) -> dict[str, str]:
    """Return the element ids by name; ids are unique across a page and its frames."""
    return {element.name: i for i, element in observation.elements.items()}


@pytest.mark.browser
def test_frame_content_is_observed_in_page_order(show_frame: ShowFrame) -> None:
    session = show_frame()
    observation = session.observe()
    assert list(ids_by_name(observation)) == ["First", "Press", "Name", "Pick", "Last"]
    assert len(observation.elements) == 5 and not observation.truncated
    assert (
        observation.text.index("First")
        < observation.text.index("Inside")
        < observation.text.index("Last")
    )
    for element in list(observation.elements.values())[1:4]:
        x, y, width, height = element.box
        center = [x + width / 2, y + height / 2]
        tag = session.evaluate("at => document.elementFromPoint(...at).tagName", center)
        assert tag == "IFRAME"


@pytest.mark.browser
def test_actions_work_inside_frame(show_frame: ShowFrame) -> None:
    session = show_frame(style="border:20px solid; padding:37px")
    ids = ids_by_name(session.observe())
    assert session.act(Action(ActionKind.CLICK, ids["Press"])) is None
    assert session.act(Action(ActionKind.TYPE, ids["Name"], "Ada L.")) is None
    assert session.act(Action(ActionKind.SELECT, ids["Pick"], "beta")) is None
    observation = session.observe()
    assert observation.elements[ids["Press"]].name == "Pressed"
    assert observation.elements[ids["Name"]].value == "Ada L."
    assert observation.elements[ids["Pick"]].value == "Beta"
    refusal = session.act(Action(ActionKind.SELECT, ids["Pick"], "gamma"))
    assert refusal == f'element {ids["Pick"]} has no option "gamma"; it has: Alpha, Beta'
    assert session.act(Action(ActionKind.CLICK, "99")) == "there is no element 99"


@pytest.mark.browser
def test_boxes_of_elements_include_padding_of_frame(show_frame: ShowFrame) -> None:
    session = show_frame()
    button_id = ids_by_name(session.observe())["Press"]
    old_left = session.observe().elements[button_id].box[0]
    session.evaluate("() => { document.querySelector('iframe').style.padding = '5px 30px' }")
    left = session.observe().elements[button_id].box[0]
    assert left == old_left + 30


@pytest.mark.browser
@pytest.mark.parametrize("overflow", ["auto", "hidden"])
def test_click_scrolls_boxes_around_frame(overflow: str, show_frame: ShowFrame) -> None:
    """The element is in the lower part of a frame that is larger than the box around it."""
    session = show_frame(
        inner=f"<p style='margin: 0; height: 220px'>x</p>{INNER}",
        style="border: 0; height: 400px",
        suffix=f"""<p style='height: 900px'>tall</p><style>body {{ overflow: {overflow};
        height: 300px; margin: 0 }} html {{ overflow: hidden }}</style>""",
    )
    ids = ids_by_name(session.observe())
    session.evaluate("() => { document.body.scrollTop = 1e6 }")
    assert session.act(Action(ActionKind.CLICK, ids["Press"])) is None
    session.evaluate("() => { document.body.scrollTop = 0 }")
    assert session.observe().elements[ids["Press"]].name == "Pressed"


@pytest.mark.browser
def test_ids_are_stable_and_unique_across_frames(show_frame: ShowFrame) -> None:
    session = show_frame()
    old_ids = ids_by_name(session.observe())
    session.evaluate("document.body.insertAdjacentHTML('afterbegin', '<button>New</button>')")
    assert session.act(Action(ActionKind.CLICK, old_ids["Press"])) is None
    new_ids = ids_by_name(session.observe())
    assert new_ids.pop("New") == "6" and new_ids.pop("Pressed") == old_ids.pop("Press")
    assert new_ids == old_ids


@pytest.mark.browser
def test_click_scrolls_to_element_in_frame(show_frame: ShowFrame) -> None:
    inner = f"<div style='height:1500px'></div>{INNER}"
    session = show_frame(inner, style="height:2000px; display:block")
    session.evaluate("scrollTo(0, 1400)")
    button_id = ids_by_name(session.observe())["Press"]
    session.evaluate("scrollTo(0, 0)")
    assert session.act(Action(ActionKind.CLICK, button_id)) is None
    assert "Pressed" in session.observe().text


@pytest.mark.browser
def test_click_refusal_names_element_covering_frame(show_frame: ShowFrame) -> None:
    session = show_frame(suffix="<div id=d hidden style='position:fixed; inset:0'>Shade</div>")
    button_id = ids_by_name(session.observe())["Press"]
    session.evaluate("d.hidden = false")
    refusal = session.act(Action(ActionKind.CLICK, button_id))
    assert refusal == 'the frame of the element is covered by <div> "Shade"'


@pytest.mark.browser
def test_click_works_in_nested_frame(site: Any, show_frame: ShowFrame) -> None:
    url = site.add_page("<button onclick='this.innerText = 1234'>Deep</button>", "/deep")
    session = show_frame(f"<p>Between</p><iframe style='margin:9px' src='{url}'></iframe>")
    button_id = ids_by_name(session.observe())["Deep"]
    assert session.act(Action(ActionKind.CLICK, button_id)) is None
    assert session.observe().elements[button_id].name == "1234"


@pytest.mark.browser
def test_frame_navigation_replaces_its_elements(other_site: Any, show_frame: ShowFrame) -> None:
    other_site.add_page("<button>Arrived</button>", "/next")
    session = show_frame("<a href='/next'>Onward</a>")
    ids = ids_by_name(session.observe())
    assert session.act(Action(ActionKind.CLICK, ids["Onward"])) is None
    observation = session.observe()
    assert (
        list(ids_by_name(observation)) == ["First", "Arrived", "Last"]
        and len(observation.elements) == 3
    )


@pytest.mark.browser
@pytest.mark.parametrize(
    "answer", ["poison", "[]", '{"entries": [7], "title": "", "hasStopped": false}']
)
def test_frame_that_breaks_scripts_is_left_out(show_frame: ShowFrame, answer: str) -> None:
    session = show_frame(
        f"<button>Inside</button><script>JSON.stringify = () => '{answer}'</script>"
    )
    assert list(ids_by_name(session.observe())) == ["First", "Last"]


@pytest.mark.browser
def test_frame_of_forbidden_origin_is_not_observed(
    site: Any, other_site: Any, pool: BrowserPool
) -> None:
    frame = f"<iframe title='F' src='{other_site.add_page(INNER)}'></iframe>"
    url = site.add_page(f"<button>First</button>{frame}<button>Last</button>")
    with pool.session(origins=[site.origin]) as session:
        session.goto(url)
        observation = session.observe()
        assert "Inside" not in observation.text and {"First", "Last"} <= set(
            ids_by_name(observation)
        )
        assert (
            "[frame: F]" in observation.text
            or '<iframe id="2" title="F"> </iframe>' in observation.text
        )


@pytest.mark.browser
def test_sandboxed_frame_is_observed(site: Any, pool: BrowserPool) -> None:
    url = site.add_page("<iframe sandbox srcdoc='<p>Plain</p><button>Idle</button>'></iframe>")
    with pool.session(origins=[site.origin]) as session:
        session.goto(url)
        observation = session.observe()
        assert "Plain" in observation.text and list(ids_by_name(observation)) == ["Idle"]
