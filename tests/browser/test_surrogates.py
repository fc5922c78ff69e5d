"""Tests of surrogates: text is truncated between characters; unpaired ones reach no prompt."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from webagent_jax import policy
from webagent_jax.agent import TEMPLATES, ChatTokenizer, PromptFormat, build_messages
from webagent_jax.browser import BrowserPool, Session
from webagent_jax.config import BrowserConfig
from webagent_jax.types import Action, ActionKind, InfraError, Observation

Show = Callable[[str], Session]

EMOJI = "\U0001f600"  # two UTF-16 units
U_FFFD = "\ufffd"


@pytest.fixture(scope="module", params=["compact", "webarena_lite"])
def pool(request: pytest.FixtureRequest) -> Iterator[BrowserPool]:
    config = BrowserConfig(
        observation_format=request.param,
        data_bbox=False,
        call_timeout=60.0,
        navigation_timeout=60.0,
    )
    with BrowserPool(config) as browser_pool:
        yield browser_pool


@pytest.fixture(scope="module")
def tokenizer() -> ChatTokenizer:
    return ChatTokenizer(policy.resolve_dir("webagent-tiny"))


def assert_well_formed(observation: Observation, tokenizer: ChatTokenizer) -> None:
    parts = [observation.text, observation.url, observation.title, observation.error or ""]
    parts += [part for e in observation.elements.values() for part in (e.kind, e.name, e.value)]
    "".join(parts).encode()
    tokenizer.prompt_ids(
        build_messages(PromptFormat(TEMPLATES["compact"]), observation.title, (), observation)
    )


@pytest.mark.browser
def test_names_are_truncated_between_characters(show: Show, tokenizer: ChatTokenizer) -> None:
    names = [f"{'a' * 98}{EMOJI}", f"{'b' * 98}{EMOJI}{EMOJI}", f"{'c' * 97}{EMOJI}{EMOJI}"]
    observation = show("".join(f"<button>{name}</button>" for name in names)).observe()
    assert [element.name for element in observation.elements.values()] == [
        names[0],  # 100 units
        f"{'b' * 98}…",
        f"{'c' * 97}{EMOJI}…",
    ]
    assert_well_formed(observation, tokenizer)


@pytest.mark.browser
def test_values_and_refusals_are_truncated_between_characters(
    show: Show, tokenizer: ChatTokenizer
) -> None:
    button = f"{'d' * 59}{EMOJI}{EMOJI}"
    session = show(
        f"<button>{button}</button><input aria-label=I value='{'v' * 1999}{EMOJI}{EMOJI}'>"
        f"<p>{'t' * 3999}{EMOJI}{EMOJI}</p><div id=d hidden style='position:fixed; inset:0'>"
        f"{button}</div>"
    )
    observation = session.observe()
    assert [e.value for e in observation.elements.values() if e.name == "I"] == ["v" * 1999 + "…"]
    assert_well_formed(observation, tokenizer)
    session.evaluate("d.hidden = false")
    refusal = session.act(Action(ActionKind.CLICK, "1"))
    assert refusal is not None and refusal.endswith(f' "{"d" * 59}"')


@pytest.mark.browser
def test_unpaired_surrogates_of_page_are_replaced(show: Show, tokenizer: ChatTokenizer) -> None:
    session = show(
        r"""<p id=p></p><button id=b>x</button><label>Name <input id=i></label><select
        aria-label=Pick><option id=o></select><script>
        p.textContent = "text \ud83d."; b.title = b.textContent = "press \ude00";
        i.value = "value \ud83d"; document.title = "title \ud83d"; o.text = "option \ude00";
        b.onclick = () => alert("alert \ud83d.");
        </script>"""
    )
    observation = session.observe()
    for text in (f"text {U_FFFD}.", f"press {U_FFFD}", f"value {U_FFFD}", f"option {U_FFFD}"):
        assert text in observation.text
    assert observation.title == f"title {U_FFFD}"
    ids = {element.kind: i for i, element in observation.elements.items()}
    click_observation = session.observe(session.act(Action(ActionKind.CLICK, ids["button"])))
    assert click_observation.error == f"the page said: alert {U_FFFD}."
    action = Action(ActionKind.SELECT, ids["select"], "\ud83d")
    refusal = session.act(action)
    assert refusal == f'element {ids["select"]} has no option "{U_FFFD}"; it has: option {U_FFFD}'
    for result in (observation, click_observation, session.observe(refusal)):
        assert_well_formed(result, tokenizer)


@pytest.mark.browser
def test_surrogates_in_results_errors_and_tabs_are_replaced(show: Show, site: Any) -> None:
    session = show(r"<p>a</p><script>document.title = 'tab \ud83d'</script>")
    result = session.evaluate(r"({'key \ud83d': ['\ude00', 1, null]})")
    assert result == {f"key {U_FFFD}": [U_FFFD, 1, None]}
    with pytest.raises(InfraError) as error:
        session.evaluate(r"() => { throw new Error('wrong \ud83d') }")
    str(error.value).encode()
    session.open_tab(site.add_page("<p>b</p>", "/b"))
    assert f"[tab 0] tab {U_FFFD}" in session.observe().text
