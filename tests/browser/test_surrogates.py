"""Text that is cut never ends in half a character, and halves in a page reach no prompt."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from webagent_jax import policy
from webagent_jax.agent import TEMPLATES, ChatTokenizer, build_messages
from webagent_jax.browser import BrowserPool, Session
from webagent_jax.config import BrowserConfig
from webagent_jax.types import Action, ActionKind, InfraError, Observation

Show = Callable[[str], Session]

FACE = "\U0001f600"  # two UTF-16 units
LOST = "\ufffd"


@pytest.fixture(scope="module", params=["compact", "webarena_lite"])
def pool(request: pytest.FixtureRequest) -> Iterator[BrowserPool]:
    config = BrowserConfig(
        observation_format=request.param,
        data_bbox=False,
        call_timeout=60.0,
        navigation_timeout=60.0,
    )
    with BrowserPool(config) as one:
        yield one


@pytest.fixture(scope="module")
def tokenizer() -> ChatTokenizer:
    return ChatTokenizer(policy.resolve_dir("webagent-tiny"))


def assert_well_formed(observation: Observation, tokenizer: ChatTokenizer) -> None:
    parts = [observation.text, observation.url, observation.title, observation.error or ""]
    parts += [part for e in observation.elements.values() for part in (e.kind, e.name, e.value)]
    "".join(parts).encode()
    tokenizer.prompt_ids(
        build_messages(TEMPLATES["compact"], True, observation.title, (), observation)
    )


@pytest.mark.browser
def test_names_are_cut_between_characters(show: Show, tokenizer: ChatTokenizer) -> None:
    names = [f"{'a' * 98}{FACE}", f"{'b' * 98}{FACE}{FACE}", f"{'c' * 97}{FACE}{FACE}"]
    observation = show("".join(f"<button>{name}</button>" for name in names)).observe()
    assert [element.name for element in observation.elements.values()] == [
        names[0],  # of 100 units
        f"{'b' * 98}…",
        f"{'c' * 97}{FACE}…",
    ]
    assert_well_formed(observation, tokenizer)


@pytest.mark.browser
def test_values_texts_and_refusals_are_cut_between_characters(
    show: Show, tokenizer: ChatTokenizer
) -> None:
    button = f"{'d' * 59}{FACE}{FACE}"
    session = show(
        f"<button>{button}</button><input aria-label=I value='{'v' * 1999}{FACE}{FACE}'>"
        f"<p>{'t' * 3999}{FACE}{FACE}</p><div id=d hidden style='position:fixed; inset:0'>"
        f"{button}</div>"
    )
    observation = session.observe()
    assert [e.value for e in observation.elements.values() if e.name == "I"] == ["v" * 1999 + "…"]
    assert_well_formed(observation, tokenizer)
    session.evaluate("d.hidden = false")
    refusal = session.act(Action(ActionKind.CLICK, "1"))
    assert refusal is not None and refusal.endswith(f' "{"d" * 59}"')


@pytest.mark.browser
def test_halves_of_a_page_are_replaced(show: Show, tokenizer: ChatTokenizer) -> None:
    session = show(
        r"""<p id=p></p><button id=b>x</button><label>Name <input id=i></label><select
        aria-label=Pick><option id=o></select><script>
        p.textContent = "text \ud83d."; b.title = b.textContent = "press \ude00";
        i.value = "value \ud83d"; document.title = "title \ud83d"; o.text = "option \ude00";
        b.onclick = () => alert("alert \ud83d.");
        </script>"""
    )
    observation = session.observe()
    for said in (f"text {LOST}.", f"press {LOST}", f"value {LOST}", f"option {LOST}"):
        assert said in observation.text
    assert observation.title == f"title {LOST}"
    ids = {element.kind: i for i, element in observation.elements.items()}
    after = session.observe(session.act(Action(ActionKind.CLICK, ids["button"])))
    assert after.error == f"the page said: alert {LOST}."
    choice = Action(ActionKind.SELECT, ids["select"], "\ud83d")
    refusal = session.act(choice)
    assert refusal == f'element {ids["select"]} has no option "{LOST}"; it has: option {LOST}'
    for one in (observation, after, session.observe(refusal)):
        assert_well_formed(one, tokenizer)


@pytest.mark.browser
def test_halves_in_answers_errors_and_tabs_are_replaced(show: Show, site: Any) -> None:
    session = show(r"<p>a</p><script>document.title = 'tab \ud83d'</script>")
    answer = session.evaluate(r"({'key \ud83d': ['\ude00', 1, null]})")
    assert answer == {f"key {LOST}": [LOST, 1, None]}
    with pytest.raises(InfraError) as failed:
        session.evaluate(r"() => { throw new Error('wrong \ud83d') }")
    str(failed.value).encode()
    session.open_tab(site.page("<p>b</p>", "/b"))
    assert f"[tab 0] tab {LOST}" in session.observe().text
