"""Frames of other origins are seen and acted on like the page around them, in both formats."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from webagent_jax.browser import BrowserPool, Session
from webagent_jax.config import BrowserConfig
from webagent_jax.types import Action, ActionKind, Observation

Framed = Callable[..., Session]

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
    with BrowserPool(config) as one:
        yield one


@pytest.fixture(params=["127.0.0.1", "localhost"])
def inner_host(request: pytest.FixtureRequest, other_site: Any) -> str:
    """Another origin of the page's own site, and one of another site: a process of its own."""
    return f"{request.param}:{other_site.origin.split(':')[1]}"


@pytest.fixture
def framed(site: Any, other_site: Any, inner_host: str, pool: BrowserPool) -> Iterator[Framed]:
    """Opens a page around a frame that holds `inner`."""
    with pool.session(origins=[site.origin, inner_host]) as session:

        def open_page(inner: str = INNER, style: str = "", after: str = "") -> Session:
            other_site.page(inner)
            frame = f"<iframe title='F' style='{style}' src='http://{inner_host}/'></iframe>"
            session.goto(site.page(f"<button>First</button>{frame}<button>Last</button>{after}"))
            return session

        yield open_page


def ids(observation: Observation) -> dict[str, str]:
    """By name. No two elements of a page and its frames have the same id."""
    return {element.name: i for i, element in observation.elements.items()}


@pytest.mark.browser
def test_it_is_told_in_its_place(framed: Framed) -> None:
    session = framed()
    seen = session.observe()
    assert list(ids(seen)) == ["First", "Press", "Name", "Pick", "Last"]
    assert len(seen.elements) == 5 and not seen.truncated
    assert seen.text.index("First") < seen.text.index("Inside") < seen.text.index("Last")
    for element in list(seen.elements.values())[1:4]:
        x, y, width, height = element.box
        middle = [x + width / 2, y + height / 2]
        hit = session.evaluate("at => document.elementFromPoint(...at).tagName", middle)
        assert hit == "IFRAME"


@pytest.mark.browser
def test_actions_land_in_it(framed: Framed) -> None:
    session = framed(style="border:20px solid; padding:7px")
    named = ids(session.observe())
    assert session.act(Action(ActionKind.CLICK, named["Press"])) is None
    assert session.act(Action(ActionKind.TYPE, named["Name"], "Ada L.")) is None
    assert session.act(Action(ActionKind.SELECT, named["Pick"], "beta")) is None
    seen = session.observe()
    assert seen.elements[named["Press"]].name == "Pressed"
    assert seen.elements[named["Name"]].value == "Ada L."
    assert seen.elements[named["Pick"]].value == "Beta"
    refusal = session.act(Action(ActionKind.SELECT, named["Pick"], "gamma"))
    assert refusal == f'element {named["Pick"]} has no option "gamma"; it has: Alpha, Beta'
    assert session.act(Action(ActionKind.CLICK, "99")) == "there is no element 99"


@pytest.mark.browser
def test_ids_stay_and_never_meet(framed: Framed) -> None:
    session = framed()
    before = ids(session.observe())
    session.evaluate("document.body.insertAdjacentHTML('afterbegin', '<button>New</button>')")
    assert session.act(Action(ActionKind.CLICK, before["Press"])) is None
    after = ids(session.observe())
    assert after.pop("New") == "6" and after.pop("Pressed") == before.pop("Press")
    assert after == before


@pytest.mark.browser
def test_what_lies_far_down_in_it_is_scrolled_to(framed: Framed) -> None:
    inner = f"<div style='height:1500px'></div>{INNER}"
    session = framed(inner, style="height:2000px; display:block")
    session.evaluate("scrollTo(0, 1400)")
    press = ids(session.observe())["Press"]
    session.evaluate("scrollTo(0, 0)")
    assert session.act(Action(ActionKind.CLICK, press)) is None
    assert "Pressed" in session.observe().text


@pytest.mark.browser
def test_what_covers_it_is_told(framed: Framed) -> None:
    session = framed(after="<div id=d hidden style='position:fixed; inset:0'>Shade</div>")
    press = ids(session.observe())["Press"]
    session.evaluate("d.hidden = false")
    refusal = session.act(Action(ActionKind.CLICK, press))
    assert refusal == 'the frame of the element is covered by <div> "Shade"'


@pytest.mark.browser
def test_a_frame_in_a_frame(site: Any, framed: Framed) -> None:
    url = site.page("<button onclick='this.innerText = 1234'>Deep</button>", "/deep")
    session = framed(f"<p>Between</p><iframe style='margin:9px' src='{url}'></iframe>")
    deep = ids(session.observe())["Deep"]
    assert session.act(Action(ActionKind.CLICK, deep)) is None
    assert session.observe().elements[deep].name == "1234"


@pytest.mark.browser
def test_a_frame_that_goes_elsewhere(other_site: Any, framed: Framed) -> None:
    other_site.page("<button>Arrived</button>", "/next")
    session = framed("<a href='/next'>Onward</a>")
    before = ids(session.observe())
    assert session.act(Action(ActionKind.CLICK, before["Onward"])) is None
    after = session.observe()
    assert list(ids(after)) == ["First", "Arrived", "Last"] and len(after.elements) == 3


@pytest.mark.browser
def test_what_is_not_allowed_is_not_told(site: Any, other_site: Any, pool: BrowserPool) -> None:
    frame = f"<iframe title='F' src='{other_site.page(INNER)}'></iframe>"
    url = site.page(f"<button>First</button>{frame}<button>Last</button>")
    with pool.session(origins=[site.origin]) as session:
        session.goto(url)
        seen = session.observe()
        assert "Inside" not in seen.text and {"First", "Last"} <= set(ids(seen))
        assert "[frame: F]" in seen.text or '<iframe id="2" title="F"> </iframe>' in seen.text


@pytest.mark.browser
def test_a_frame_without_rights_is_told(site: Any, pool: BrowserPool) -> None:
    url = site.page("<iframe sandbox srcdoc='<p>Plain</p><button>Idle</button>'></iframe>")
    with pool.session(origins=[site.origin]) as session:
        session.goto(url)
        seen = session.observe()
        assert "Plain" in seen.text and list(ids(seen)) == ["Idle"]
