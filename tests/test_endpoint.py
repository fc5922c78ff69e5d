"""The client of chat endpoints against a real server that does all that goes wrong."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from email.utils import formatdate
from typing import Any

import pytest

from tests.chat_server import Answer, ChatServer, message, serving
from webagent_jax import config
from webagent_jax.config import ConfigError, EndpointConfig, PolicyConfig, RunConfig
from webagent_jax.endpoint import (
    ChatEndpoint,
    ChatRequest,
    ChatResponse,
    HttpClient,
    Usage,
    http_client,
    prices,
)
from webagent_jax.types import InfraError, Message

KEY = "sk-very-secret-0123456789"
TALK = (Message("system", "Act."), Message("user", "Page"))
DONE = Answer(message("done") | {"usage": {"prompt_tokens": 7, "completion_tokens": 2}})


@pytest.fixture
def chats(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatServer]:
    before = set(threading.enumerate())
    with serving(monkeypatch, DONE) as running:
        yield running
    assert set(threading.enumerate()) == before


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between tries, which are not made."""
    made: list[float] = []
    monkeypatch.setattr("webagent_jax.endpoint.http_client.time.sleep", made.append)
    return made


def endpoint_at(chats: ChatServer, **options: Any) -> ChatEndpoint:
    told = {"url": chats.url, "model": "tiny", "api_key_env": "KEY", "retries": 2, "timeout": 5.0}
    return ChatEndpoint(EndpointConfig(**(told | options)), environ={"KEY": KEY}, pause=0.001)


def ask(endpoint: ChatEndpoint, timeout: float = 20.0, **options: Any) -> ChatResponse:
    told = {"messages": TALK, "max_tokens": 16, "temperature": 0.5, "top_p": 0.9, "seed": 3}
    return endpoint.chat(ChatRequest(**(told | options)), timeout)


# --- a request and its reply ---------------------------------------------------------------------


def test_what_is_sent(chats: ChatServer) -> None:
    ask(endpoint_at(chats))
    ((path, headers, body),) = chats.requests
    assert path == "/v1/chat/completions"
    assert headers["Authorization"] == f"Bearer {KEY}"
    assert body == {
        "model": "tiny",
        "messages": [{"role": "system", "content": "Act."}, {"role": "user", "content": "Page"}],
        "max_tokens": 16,
        "temperature": 0.5,
        "top_p": 0.9,
        "seed": 3,
    }


def test_no_key_sends_none(chats: ChatServer) -> None:
    ask(endpoint_at(chats, api_key_env="OTHER"))
    assert "Authorization" not in chats.requests[0][1]


@pytest.mark.parametrize(
    ("body", "text", "finish"),
    [
        (message("hi"), "hi", "stop"),
        (message("hi", "length"), "hi", "length"),
        (message("hi", "content_filter"), "hi", "stop"),
        (message(None), "", "stop"),
        (message("", "length"), "", "length"),
        (message("b", reasoning_content="a\n"), "<think> a </think> b", "stop"),
        (message("b", reasoning="a"), "<think> a </think> b", "stop"),
        (message("b", reasoning_content=None), "b", "stop"),
        (message(None, "length", reasoning_content="a"), "<think> a </think> ", "length"),
        (message("<think> c </think> b", reasoning_content="a"), "<think> c </think> b", "stop"),
    ],
)
def test_a_reply_is_read(chats: ChatServer, body: Any, text: str, finish: str) -> None:
    chats.replies = [Answer(body)]
    reply = ask(endpoint_at(chats))
    assert (reply.text, reply.finish) == (text, finish)
    assert (reply.prompt_tokens, reply.completion_tokens) == (None, None)


def test_leading_blank_lines_are_no_fault(chats: ChatServer) -> None:
    chats.replies = [b"\n\n" + DONE.content]
    assert ask(endpoint_at(chats)) == ChatResponse("done", "stop", 7, 2)


# --- what passes ---------------------------------------------------------------------------------

PASSING = {
    "rate": Answer(b"slow down", 429),
    "server": Answer(b"oops", 500),
    "overloaded": Answer(b"", 529),
    "cut off": dataclasses.replace(DONE, lost=5),
    "cut off fault": Answer(b"{long}", 500, lost=3),
    "malformed": Answer(b"<html>"),
    "not an object": Answer(b"[]"),
    "no choices": Answer({"choices": []}),
    "no message": Answer({"choices": [{"text": "done"}]}),
    "an error for an answer": Answer({"error": {"message": "upstream"}}),
    "no text": Answer(message([{"type": "text"}])),  # type: ignore[arg-type]
    "reset": Answer(reset=True),
    "slow": dataclasses.replace(DONE, hold=10.0),
    "drip": dataclasses.replace(DONE, drip=0.05),
}


@pytest.mark.parametrize("fault", PASSING)
def test_a_passing_fault_is_tried_again(chats: ChatServer, fault: str) -> None:
    chats.replies = [PASSING[fault], PASSING[fault], DONE]
    endpoint = endpoint_at(chats, timeout=0.2 if fault in ("slow", "drip") else 5.0)
    assert ask(endpoint) == ChatResponse("done", "stop", 7, 2)
    assert (len(chats.requests), endpoint.usage) == (3, Usage(replies=1, retries=2))


@pytest.mark.parametrize("fault", ["rate", "malformed", "reset", "slow"])
def test_a_fault_that_lasts_is_one_of_the_infrastructure(chats: ChatServer, fault: str) -> None:
    chats.replies = [DONE, PASSING[fault]]
    endpoint = endpoint_at(chats, timeout=0.3 if fault == "slow" else 5.0)
    ask(endpoint)
    with pytest.raises(InfraError, match=r"tiny at http.* sent no response: "):
        ask(endpoint)
    assert (len(chats.requests), endpoint.usage.retries) == (4, 3)


def test_who_has_never_answered_is_to_be_mended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    endpoint = endpoint_at(ChatServer([], url="http://127.0.0.1:1/v1"))
    with pytest.raises(ConfigError, match=r"Connection refused.*\nIt has sent none in this run"):
        ask(endpoint)


def test_pauses_grow_and_are_drawn_from_the_seed(chats: ChatServer, pauses: list[float]) -> None:
    chats.replies = [500]
    drawn = []
    for seed in (1, 1, 2):
        endpoint = ChatEndpoint(EndpointConfig(chats.url, "tiny", retries=3), pause=1.0)
        with pytest.raises(ConfigError):
            ask(endpoint, seed=seed)
        drawn.append(tuple(pauses))
        pauses.clear()
    assert drawn[0] == drawn[1] != drawn[2]
    for pause, factor in zip(drawn[0], (1, 2, 4), strict=True):
        assert 0.5 * factor <= pause <= 1.5 * factor


def test_retry_after_is_heeded(chats: ChatServer, pauses: list[float]) -> None:
    chats.replies = [
        Answer(status=429, headers=(("Retry-After", "3"),)),
        Answer(status=503, headers=(("Retry-After", formatdate(time.time() + 60, usegmt=True)),)),
        DONE,
    ]
    assert ask(endpoint_at(chats), timeout=100.0).text == "done"
    assert 3 < pauses[0] < 3.1
    assert 30 < pauses[1] < 60.1


@pytest.mark.parametrize("value", ["", "soon", "-1", "nan", "Wed, 21 Oct 2015 07:28:00 GMT"])
def test_a_retry_after_that_asks_for_nothing(value: str) -> None:
    assert http_client.retry_after(value) == 0


def test_a_pause_that_does_not_fit_is_not_made(chats: ChatServer, pauses: list[float]) -> None:
    chats.replies = [Answer(b"tomorrow", 429, headers=(("Retry-After", "9999"),))]
    with pytest.raises(ConfigError, match="429: tomorrow"):
        ask(endpoint_at(chats))
    assert (len(chats.requests), pauses) == (1, [])


def test_all_tries_share_one_time_out(chats: ChatServer) -> None:
    chats.replies = [PASSING["slow"]]
    with pytest.raises(ConfigError):
        ask(endpoint_at(chats, retries=1_000), timeout=0.3)
    assert len(chats.requests) == 1


# --- what does not pass --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "mend"),
    [
        (400, "engine.max_model_len"),
        (401, "The key in KEY is not valid"),
        (402, "no credit left"),
        (403, "The key in KEY may not use this model"),
        (404, "policy.endpoint.model"),
        (302, "policy.endpoint"),
    ],
)
def test_a_refusal_is_told_at_once_and_for_all(chats: ChatServer, status: int, mend: str) -> None:
    told = {"error": {"message": f"Incorrect API key provided: {KEY}"}}
    chats.replies = [Answer(told, status, headers=(("Location", f"{chats.url}/elsewhere"),))]
    endpoint = endpoint_at(chats)
    for _ in range(2):
        with pytest.raises(ConfigError, match=mend) as refused:
            ask(endpoint)
        assert f"status {status}" in str(refused.value)
        assert "Incorrect API key provided: ***" in str(refused.value)
    assert len(chats.requests) == 1


def test_a_key_that_is_missed_is_asked_for(chats: ChatServer) -> None:
    chats.replies = [401]
    with pytest.raises(ConfigError, match="export it in OTHER, which"):
        ask(endpoint_at(chats, api_key_env="OTHER"))


def test_an_empty_purse_is_no_rate_limit(chats: ChatServer) -> None:
    chats.replies = [Answer({"error": {"code": "insufficient_quota"}}, 429)]
    with pytest.raises(ConfigError, match="no credit left"):
        ask(endpoint_at(chats))
    assert len(chats.requests) == 1


@pytest.mark.parametrize("status", [400, 403, 413, 422])
def test_a_prompt_that_is_refused_after_others_went_well(chats: ChatServer, status: int) -> None:
    chats.replies = [DONE, Answer(b"too long", status), DONE]
    endpoint = endpoint_at(chats)
    ask(endpoint)
    with pytest.raises(InfraError, match=f"rejects this prompt, status {status}: too long"):
        ask(endpoint)
    assert ask(endpoint).text == "done"


@pytest.mark.parametrize("fault", PASSING)
def test_no_fault_shows_the_key(chats: ChatServer, fault: str) -> None:
    if fault not in ("slow", "drip"):
        shown = PASSING[fault].content + KEY.encode()
        chats.replies = [dataclasses.replace(PASSING[fault], body=shown)]
        with pytest.raises(ConfigError) as told:
            ask(endpoint_at(chats, retries=0))
        assert KEY not in f"{told.value} {told.value.__cause__}"


def test_a_key_is_never_shown() -> None:
    assert KEY not in repr(HttpClient("http://x/v1", KEY))
    for broken in (f"{KEY} x", f"{KEY}\nx", f"{KEY}é"):
        with pytest.raises(ConfigError, match="export it again") as told:
            HttpClient("http://x/v1", broken)
        assert KEY not in str(told.value)


def test_blanks_around_a_key_are_no_part_of_it(chats: ChatServer) -> None:
    endpoint = ChatEndpoint(
        EndpointConfig(chats.url, "tiny", api_key_env="KEY"), environ={"KEY": f" {KEY}\n"}
    )
    ask(endpoint)
    assert chats.requests[0][1]["Authorization"] == f"Bearer {KEY}"


# --- options that some endpoints refuse -----------------------------------------------------------


def picky(*refused: str):
    """Refuses the first of these options that it is told."""

    def answer(body: Any) -> Answer:
        for name in refused:
            if name in body:
                return Answer({"error": {"message": f"Unsupported parameter: '{name}'"}}, 400)
        return DONE

    return answer


@pytest.mark.parametrize(
    ("refused", "left"),
    [
        (("seed",), {"max_tokens", "temperature", "top_p"}),
        (("max_tokens",), {"max_completion_tokens", "seed", "temperature", "top_p"}),
        (("temperature", "top_p"), {"max_tokens", "seed"}),
        (("max_tokens", "seed", "temperature", "top_p"), {"max_completion_tokens"}),
    ],
)
def test_a_refused_option_is_not_sent_again(
    chats: ChatServer, refused: tuple[str, ...], left: set[str]
) -> None:
    chats.answer = picky(*refused)
    said: list[str] = []
    endpoint = ChatEndpoint(EndpointConfig(chats.url, "tiny"), environ={}, log=said.append)
    for _ in range(3):
        assert ask(endpoint).text == "done"
    assert len(chats.requests) == len(refused) + 3
    assert all(set(body) == {"model", "messages", *left} for body in chats.bodies[-3:])
    assert [line.split()[4].rstrip(":") for line in said] == sorted(refused)
    assert (endpoint.usage.replies, endpoint.usage.retries) == (3, 0)


def test_an_option_that_is_refused_under_both_names(chats: ChatServer) -> None:
    chats.answer = picky("max_tokens", "max_completion_tokens")
    with pytest.raises(ConfigError, match="max_completion_tokens"):
        ask(endpoint_at(chats))
    assert len(chats.requests) == 2


# --- many at once --------------------------------------------------------------------------------


def test_so_many_requests_at_once(chats: ChatServer) -> None:
    chats.replies = [dataclasses.replace(DONE, hold=0.05)]
    endpoint = endpoint_at(chats, concurrency=3)
    with ThreadPoolExecutor(9) as threads:
        replies = list(threads.map(lambda seed: ask(endpoint, seed=seed), range(18)))
    assert [reply.text for reply in replies] == ["done"] * 18
    assert chats.most_at_once == 3


def test_who_finds_no_place_is_told(chats: ChatServer) -> None:
    chats.replies = [dataclasses.replace(DONE, hold=10.0)]
    endpoint = endpoint_at(chats, concurrency=1)
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(ask, endpoint)
        while not chats.requests:
            time.sleep(0.001)
        with pytest.raises(InfraError, match=r"raise policy\.endpoint\.concurrency"):
            ask(endpoint, timeout=0.05)
        chats.over.set()
        assert first.result(timeout=10).text == "done"


def test_counts_are_right_whatever_goes_wrong(chats: ChatServer) -> None:
    faults = [PASSING[name] for name in PASSING if name not in ("slow", "drip")]
    chats.replies = [reply for fault in faults for reply in (fault, DONE, fault, DONE)] + [DONE]
    endpoint = endpoint_at(chats, retries=100)
    with ThreadPoolExecutor(8) as threads:
        replies = list(threads.map(lambda seed: ask(endpoint, seed=seed), range(40)))
        list(threads.map(lambda reply: endpoint.add_usage(7, 2), replies))
    assert [reply.text for reply in replies] == ["done"] * 40
    assert endpoint.usage == Usage(40, 2 * len(faults), 40 * 7, 40 * 2)
    assert len(chats.requests) == 40 + 2 * len(faults)


def test_places_come_back_after_a_fault(chats: ChatServer) -> None:
    chats.replies = [500, 500, 500, 400]
    endpoint = endpoint_at(chats, concurrency=1)
    with pytest.raises(ConfigError):
        ask(endpoint)
    for _ in range(2):
        with pytest.raises(ConfigError):
            ask(endpoint)


# --- what it costs -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "model", "own", "dollars"),
    [
        ("https://api.openai.com/v1", "gpt-4o", {}, 2.5 + 10.0),
        ("https://api.openai.com/v1", "gpt-unheard-of", {}, None),
        ("http://localhost:8000/v1", "gpt-4o", {}, None),
        (
            "http://localhost:8000/v1",
            "m",
            {"prompt_usd_per_mtok": 1.0, "completion_usd_per_mtok": 0.0},
            1.0,
        ),
        ("http://localhost:8000/v1", "m", {"prompt_usd_per_mtok": 1.0}, None),
        ("https://api.openai.com/v1", "gpt-4o", {"prompt_usd_per_mtok": 1.0}, 1.0 + 10.0),
    ],
)
def test_dollars(url: str, model: str, own: dict[str, float], dollars: float | None) -> None:
    endpoint = ChatEndpoint(EndpointConfig(url, model, **own), environ={})
    for _ in range(4):
        endpoint.add_usage(250_000, 250_000)
    assert endpoint.usage.dollars == dollars


def test_usage_in_words() -> None:
    assert str(Usage(2, 1, 1_000, 20)) == (
        "2 responses, 1 retries, 1,000 + 20 tokens, at an unknown price"
    )
    assert str(Usage(dollars=1_234.5)).endswith("about $1,234.50")


def test_prices_are_dollars_for_a_million() -> None:
    for models in prices.PRICES.values():
        assert all(0 < prompt < completion < 1_000 for prompt, completion in models.values())


# --- its options ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"url": ""}, "policy.endpoint.url must be set"),
        ({"url": "localhost:8000"}, "policy.endpoint.url must be set"),
        ({"model": ""}, "policy.endpoint.model must name"),
        ({"concurrency": 0}, "concurrency must be at least 1"),
        ({"retries": -1}, "retries must not be negative"),
        ({"timeout": 0.0}, "timeout must be above 0"),
    ],
)
def test_a_config_that_cannot_work(options: dict[str, Any], words: str) -> None:
    endpoint = EndpointConfig(**({"url": "http://x/v1", "model": "m"} | options))
    with pytest.raises(ConfigError, match=words):
        RunConfig(policy=PolicyConfig("openai", endpoint))
    assert RunConfig(policy=PolicyConfig("weights", endpoint)).policy.endpoint == endpoint


def test_a_config_asks_of_an_endpoint_what_it_can_do() -> None:
    endpoint = EndpointConfig("http://x/v1", "m")
    values = config.to_config_dict(RunConfig(policy=PolicyConfig("openai", endpoint)))
    values.engine.max_model_len = 100_000  # no row has to hold it
    assert config.from_config_dict(values).engine.max_model_len == 100_000
    for options in (values.rollout, values.eval):
        options.top_k = 5
        with pytest.raises(ConfigError, match=r"rollout\.top_k and eval\.top_k must be 0"):
            config.from_config_dict(values)
        options.top_k = 0
    values.policy.kind = "weights"
    values.engine.max_model_len = 512
    config.from_config_dict(values)


@pytest.mark.parametrize(
    "url", ["", "api.example/v1", "ftp://x/v1", "http://", "file:///etc/passwd"]
)
def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(ConfigError, match="must begin with http"):
        HttpClient(url)
