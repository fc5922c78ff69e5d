"""Tests of the chat endpoint client against a local server with injected faults."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from email.utils import formatdate
from typing import Any

import pytest

from tests.chat_server import Answer, ChatServer, message, serve_chat
from webagent_jax import config
from webagent_jax.config import ConfigError, EndpointConfig, PolicyConfig, PromptConfig, RunConfig
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
MESSAGES = (Message("system", "Act."), Message("user", "Page"))
SUCCESS = Answer(message("done") | {"usage": {"prompt_tokens": 7, "completion_tokens": 2}})


@pytest.fixture
def chat_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatServer]:
    initial_threads = set(threading.enumerate())
    with serve_chat(monkeypatch, SUCCESS) as server:
        yield server
    # Threads of earlier tests may end meanwhile.
    assert set(threading.enumerate()) <= initial_threads


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Record the pauses between retries instead of sleeping."""
    durations: list[float] = []
    monkeypatch.setattr("webagent_jax.endpoint.http_client.time.sleep", durations.append)
    return durations


def make_endpoint(chat_server: ChatServer, **options: Any) -> ChatEndpoint:
    defaults = {
        "url": chat_server.url,
        "model": "tiny",
        "api_key_env": "KEY",
        "retries": 2,
        "timeout": 5.0,
    }
    return ChatEndpoint(EndpointConfig(**(defaults | options)), environ={"KEY": KEY}, pause=0.001)


def send_request(endpoint: ChatEndpoint, timeout: float = 20.0, **options: Any) -> ChatResponse:
    defaults = {"messages": MESSAGES, "max_tokens": 16, "temperature": 0.5, "top_p": 0.9, "seed": 3}
    return endpoint.chat(ChatRequest(**(defaults | options)), timeout)


# --- requests and responses ----------------------------------------------------------------------


def test_request_contains_messages_and_sampling_options(chat_server: ChatServer) -> None:
    send_request(make_endpoint(chat_server))
    ((path, headers, body),) = chat_server.requests
    assert path == "/v1/chat/completions"
    assert headers["Authorization"] == f"Bearer {KEY}"
    # Some providers reject the default of urllib.
    assert headers["User-Agent"] == "webagent_jax"
    assert body == {
        "model": "tiny",
        "messages": [{"role": "system", "content": "Act."}, {"role": "user", "content": "Page"}],
        "max_tokens": 16,
        "temperature": 0.5,
        "top_p": 0.9,
        "seed": 3,
    }


def test_request_without_key_has_no_authorization_header(chat_server: ChatServer) -> None:
    send_request(make_endpoint(chat_server, api_key_env="OTHER"))
    assert "Authorization" not in chat_server.requests[0][1]


def test_extra_body_adds_fields_to_requests(chat_server: ChatServer) -> None:
    extra_body = '{"reasoning_effort": "low", "provider": {"order": ["a"]}}'
    send_request(make_endpoint(chat_server, extra_body=extra_body))
    (body,) = chat_server.bodies
    assert body["reasoning_effort"] == "low" and body["provider"] == {"order": ["a"]}
    assert body["model"] == "tiny" and body["max_tokens"] == 16


@pytest.mark.parametrize("text", ["", " \n"])
def test_empty_response_is_sent_as_placeholder(chat_server: ChatServer, text: str) -> None:
    messages = (*MESSAGES, Message("assistant", text), Message("user", ""))
    send_request(make_endpoint(chat_server), messages=messages)
    assert chat_server.bodies[0]["messages"][2:] == [
        {"role": "assistant", "content": "(no content)"},
        {"role": "user", "content": ""},
    ]


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
        (message("b", reasoning=""), "b", "stop"),
        (message("b", reasoning_content="\n"), "b", "stop"),
        (message(None, "length", reasoning_content="a"), "<think> a </think> ", "length"),
        (message("<think> c </think> b", reasoning_content="a"), "<think> c </think> b", "stop"),
        (
            message([{"type": "thinking", "thinking": []}, {"text": "a"}, {"text": "b"}]),
            "ab",
            "stop",
        ),
    ],
)
def test_response_parses_text_and_finish_reason(
    chat_server: ChatServer, body: Any, text: str, finish: str
) -> None:
    chat_server.replies = [Answer(body)]
    reply = send_request(make_endpoint(chat_server))
    assert (reply.text, reply.finish) == (text, finish)
    assert (reply.prompt_tokens, reply.completion_tokens) == (None, None)


def test_response_allows_leading_blank_lines(chat_server: ChatServer) -> None:
    chat_server.replies = [b"\n\n" + SUCCESS.content]
    assert send_request(make_endpoint(chat_server)) == ChatResponse("done", "stop", 7, 2)


def test_reasoning_that_reached_the_output_limit_is_a_cut_response(
    chat_server: ChatServer,
) -> None:
    text = (
        "Could not finish the message because max_tokens or model output limit was reached. "
        "Please try again with higher max_tokens."
    )
    chat_server.replies = [Answer({"error": {"message": text}}, 400)]
    endpoint = make_endpoint(chat_server)
    assert send_request(endpoint) == ChatResponse("", "length", None, None)
    # max_tokens is not an option that the model rejects.
    assert [body["max_tokens"] for body in chat_server.bodies] == [16]
    assert endpoint.usage == Usage(responses=1)


# --- transient errors ----------------------------------------------------------------------------

TRANSIENT_FAULTS = {
    "rate": Answer(b"slow down", 429),
    "server": Answer(b"oops", 500),
    "overloaded": Answer(b"", 529),
    "cut off": dataclasses.replace(SUCCESS, missing_bytes=5),
    "cut off fault": Answer(b"{long}", 500, missing_bytes=3),
    "malformed": Answer(b"<html>"),
    "not an object": Answer(b"[]"),
    "no choices": Answer({"choices": []}),
    "no message": Answer({"choices": [{"text": "done"}]}),
    "an error for an answer": Answer({"error": {"message": "upstream"}}),
    "no text": Answer(message({"type": "text"})),  # type: ignore[arg-type]
    **{
        finish: Answer(message("<think> cut", finish))
        for finish in ("error", "abort", "insufficient_system_resource", "network_error")
    },
    "error after a part": Answer(
        {"choices": [message("<think> cut")["choices"][0] | {"error": {"code": 502}}]}
    ),
    "reset": Answer(reset_connection=True),
    "slow": dataclasses.replace(SUCCESS, delay=10.0),
    "drip": dataclasses.replace(SUCCESS, byte_interval=0.05),
}


@pytest.mark.parametrize("fault", TRANSIENT_FAULTS)
def test_transient_fault_is_retried(chat_server: ChatServer, fault: str) -> None:
    chat_server.replies = [TRANSIENT_FAULTS[fault], TRANSIENT_FAULTS[fault], SUCCESS]
    endpoint = make_endpoint(chat_server, timeout=0.2 if fault in ("slow", "drip") else 5.0)
    assert send_request(endpoint) == ChatResponse("done", "stop", 7, 2)
    assert (len(chat_server.requests), endpoint.usage) == (3, Usage(responses=1, failed_requests=2))


@pytest.mark.parametrize("fault", ["rate", "malformed", "reset", "slow"])
def test_persistent_fault_raises_infra_error(chat_server: ChatServer, fault: str) -> None:
    chat_server.replies = [SUCCESS, TRANSIENT_FAULTS[fault]]
    endpoint = make_endpoint(chat_server, timeout=0.3 if fault == "slow" else 5.0)
    send_request(endpoint)
    with pytest.raises(InfraError, match=r"tiny at http.* sent no response: "):
        send_request(endpoint)
    assert (len(chat_server.requests), endpoint.usage.failed_requests) == (4, 3)


def test_unreachable_endpoint_raises_config_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    endpoint = make_endpoint(ChatServer([], url="http://127.0.0.1:1/v1"))
    with pytest.raises(ConfigError, match=r"Connection refused.*\nIt has sent none in this run"):
        send_request(endpoint)


def test_retry_pauses_grow_and_depend_on_seed(chat_server: ChatServer, pauses: list[float]) -> None:
    chat_server.replies = [500]
    pauses_per_run = []
    for seed in (1, 1, 2):
        endpoint = ChatEndpoint(EndpointConfig(chat_server.url, "tiny", retries=3), pause=1.0)
        with pytest.raises(ConfigError):
            send_request(endpoint, seed=seed)
        pauses_per_run.append(tuple(pauses))
        pauses.clear()
    assert pauses_per_run[0] == pauses_per_run[1] != pauses_per_run[2]
    for pause, factor in zip(pauses_per_run[0], (1, 2, 4), strict=True):
        assert 0.5 * factor <= pause <= 1.5 * factor


def test_retry_after_header_sets_pause(chat_server: ChatServer, pauses: list[float]) -> None:
    chat_server.replies = [
        Answer(status=429, headers=(("Retry-After", "3"),)),
        Answer(status=503, headers=(("Retry-After", formatdate(time.time() + 60, usegmt=True)),)),
        SUCCESS,
    ]
    assert send_request(make_endpoint(chat_server), timeout=100.0).text == "done"
    assert 3 < pauses[0] < 3.1
    assert 30 < pauses[1] < 60.1


@pytest.mark.parametrize(
    "value",
    [
        *("", "soon", "-1", "nan", "Wed, 21 Oct 2015 07:28:00 GMT"),
        "Wed, 21 Oct 99999999999999999999 07:28:00 GMT",
    ],
)
def test_retry_after_is_zero_for_invalid_or_past_values(value: str) -> None:
    assert http_client.retry_after(value) == 0


def test_retry_is_skipped_if_pause_exceeds_timeout(
    chat_server: ChatServer, pauses: list[float]
) -> None:
    chat_server.replies = [Answer(b"tomorrow", 429, headers=(("Retry-After", "9999"),))]
    with pytest.raises(ConfigError, match="429: tomorrow"):
        send_request(make_endpoint(chat_server))
    assert (len(chat_server.requests), pauses) == (1, [])


def test_retries_share_one_timeout(chat_server: ChatServer) -> None:
    chat_server.replies = [TRANSIENT_FAULTS["slow"]]
    with pytest.raises(ConfigError):
        send_request(make_endpoint(chat_server, retries=1_000), timeout=0.3)
    assert len(chat_server.requests) == 1


# --- permanent errors ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "fix"),
    [
        (400, "engine.max_model_len"),
        (401, "The key in KEY is not valid"),
        (402, "no credit left"),
        (403, "The key in KEY may not use this model"),
        (404, "policy.endpoint.model"),
        (302, "policy.endpoint"),
    ],
)
def test_permanent_error_fails_later_requests(
    chat_server: ChatServer, status: int, fix: str
) -> None:
    body = {"error": {"message": f"Incorrect API key provided: {KEY}"}}
    chat_server.replies = [
        Answer(body, status, headers=(("Location", f"{chat_server.url}/elsewhere"),))
    ]
    endpoint = make_endpoint(chat_server)
    for _ in range(2):
        with pytest.raises(ConfigError, match=fix) as error:
            send_request(endpoint)
        assert f"status {status}" in str(error.value)
        assert "Incorrect API key provided: ***" in str(error.value)
    assert len(chat_server.requests) == 1


def test_missing_key_error_names_environment_variable(chat_server: ChatServer) -> None:
    chat_server.replies = [401]
    with pytest.raises(ConfigError, match="export it in OTHER, which"):
        send_request(make_endpoint(chat_server, api_key_env="OTHER"))


def test_error_quotes_page_of_proxy_in_one_line(chat_server: ChatServer) -> None:
    page = b"<html>\r\n<head>\n  <title>403\tForbidden</title>\n" + b" \n" * 600 + b"</html>\n"
    chat_server.replies = [Answer(page, 403)]
    with pytest.raises(ConfigError) as error:
        send_request(make_endpoint(chat_server))
    assert "status 403: <html> <head> <title>403 Forbidden</title> </html>" in str(error.value)
    assert len(str(error.value).splitlines()) <= 3


def test_insufficient_quota_is_not_retried(chat_server: ChatServer) -> None:
    chat_server.replies = [Answer({"error": {"code": "insufficient_quota"}}, 429)]
    with pytest.raises(ConfigError, match="no credit left"):
        send_request(make_endpoint(chat_server))
    assert len(chat_server.requests) == 1


def test_low_credit_balance_ends_the_run(chat_server: ChatServer) -> None:
    text = "Your credit balance is too low to access the Anthropic API."
    chat_server.replies = [SUCCESS, Answer({"error": {"message": text}}, 400)]
    endpoint = make_endpoint(chat_server)
    send_request(endpoint)
    for _ in range(2):
        with pytest.raises(ConfigError, match="no credit left"):
            send_request(endpoint)
    assert len(chat_server.requests) == 2


@pytest.mark.parametrize("status", [400, 403, 413, 422])
def test_prompt_rejection_after_success_raises_infra_error(
    chat_server: ChatServer, status: int
) -> None:
    chat_server.replies = [SUCCESS, Answer(b"too long", status), SUCCESS]
    endpoint = make_endpoint(chat_server)
    send_request(endpoint)
    with pytest.raises(InfraError, match=f"rejects this prompt, status {status}: too long"):
        send_request(endpoint)
    assert send_request(endpoint).text == "done"
    assert (endpoint.usage.responses, endpoint.usage.failed_requests) == (2, 1)


@pytest.mark.parametrize("status", [400, 403, 500])
def test_first_failure_beside_other_requests_is_not_fatal(
    chat_server: ChatServer, status: int
) -> None:
    chat_server.replies = [dataclasses.replace(SUCCESS, delay=10.0), status, status, status]
    endpoint = make_endpoint(chat_server)
    with ThreadPoolExecutor(1) as threads:
        slow = threads.submit(send_request, endpoint)
        while not chat_server.requests:
            time.sleep(0.001)
        with pytest.raises(InfraError, match=f"status {status}"):
            send_request(endpoint)
        chat_server.shutdown_event.set()
        assert slow.result(timeout=10).text == "done"


def test_repeated_rejections_beside_a_slow_request_are_fatal(chat_server: ChatServer) -> None:
    chat_server.replies = [dataclasses.replace(SUCCESS, delay=10.0), 400]
    endpoint = make_endpoint(chat_server, concurrency=3)
    with ThreadPoolExecutor(1) as threads:
        slow = threads.submit(send_request, endpoint)
        while not chat_server.requests:
            time.sleep(0.001)
        for expected_error in (InfraError, InfraError, ConfigError, ConfigError):
            with pytest.raises(expected_error):
                send_request(endpoint)
        # The last one fails without a call.
        assert len(chat_server.requests) == 4
        chat_server.shutdown_event.set()
        assert slow.result(timeout=10).text == "done"


def test_rejection_of_all_concurrent_requests_is_fatal(chat_server: ChatServer) -> None:
    barrier = threading.Barrier(4, timeout=10)

    def reject_together(_: Any) -> int:
        barrier.wait()
        return 400

    chat_server.answer = reject_together
    endpoint = make_endpoint(chat_server)
    with ThreadPoolExecutor(4) as threads:
        futures = [threads.submit(send_request, endpoint) for _ in range(4)]
    errors = [type(future.exception()) for future in futures]
    assert (errors.count(InfraError), errors.count(ConfigError)) == (3, 1)


@pytest.mark.parametrize(
    "answer",
    [
        Answer(KEY.encode(), 429),
        Answer(KEY.encode(), 500),
        Answer({"choices": [], "quote": KEY}),
        Answer({"error": {"message": KEY}}),
        Answer(KEY.encode(), 400),
    ],
)
def test_errors_hide_key_that_endpoint_quotes(chat_server: ChatServer, answer: Answer) -> None:
    chat_server.replies = [answer]
    with pytest.raises(ConfigError) as error:
        send_request(make_endpoint(chat_server, retries=0))
    assert "***" in str(error.value)
    assert KEY not in f"{error.value} {error.value.__cause__}"


def test_http_client_hides_key_in_repr_and_errors() -> None:
    assert KEY not in repr(HttpClient("http://x/v1", KEY))
    for invalid_key in (f"{KEY} x", f"{KEY}\nx", f"{KEY}é"):
        with pytest.raises(ConfigError, match="export it again") as error:
            HttpClient("http://x/v1", invalid_key)
        assert KEY not in str(error.value)


def test_key_whitespace_is_stripped(chat_server: ChatServer) -> None:
    endpoint = ChatEndpoint(
        EndpointConfig(chat_server.url, "tiny", api_key_env="KEY"), environ={"KEY": f" {KEY}\n"}
    )
    send_request(endpoint)
    assert chat_server.requests[0][1]["Authorization"] == f"Bearer {KEY}"


# --- unsupported options --------------------------------------------------------------------------


def reject_options(*options: str):
    """Return a handler that rejects the first of these options that a request contains."""

    def answer(body: Any) -> Answer:
        for name in options:
            if name in body:
                return Answer({"error": {"message": f"Unsupported parameter: '{name}'"}}, 400)
        return SUCCESS

    return answer


@pytest.mark.parametrize(
    ("unsupported_options", "expected_options"),
    [
        (("seed",), {"max_tokens", "temperature", "top_p"}),
        (("max_tokens",), {"max_completion_tokens", "seed", "temperature", "top_p"}),
        (("temperature", "top_p"), {"max_tokens", "seed"}),
        (("max_tokens", "seed", "temperature", "top_p"), {"max_completion_tokens"}),
    ],
)
def test_unsupported_option_is_not_resent(
    chat_server: ChatServer, unsupported_options: tuple[str, ...], expected_options: set[str]
) -> None:
    chat_server.answer = reject_options(*unsupported_options)
    log_lines: list[str] = []
    endpoint = ChatEndpoint(
        EndpointConfig(chat_server.url, "tiny"), environ={}, log=log_lines.append
    )
    for _ in range(3):
        assert send_request(endpoint).text == "done"
    assert len(chat_server.requests) == len(unsupported_options) + 3
    assert all(
        set(body) == {"model", "messages", *expected_options} for body in chat_server.bodies[-3:]
    )
    assert [line.split()[4].rstrip(":") for line in log_lines] == sorted(unsupported_options)
    assert (endpoint.usage.responses, endpoint.usage.failed_requests) == (3, 0)


def test_option_unsupported_under_both_names_raises_error(chat_server: ChatServer) -> None:
    chat_server.answer = reject_options("max_tokens", "max_completion_tokens")
    endpoint = make_endpoint(chat_server)
    with pytest.raises(ConfigError, match="max_completion_tokens"):
        send_request(endpoint)
    assert len(chat_server.requests) == 2
    # The first rejection is followed by another request for the same response.
    assert endpoint.usage.failed_requests == 1


# --- concurrency ---------------------------------------------------------------------------------


def test_concurrency_limits_parallel_requests(chat_server: ChatServer) -> None:
    chat_server.replies = [dataclasses.replace(SUCCESS, delay=0.05)]
    endpoint = make_endpoint(chat_server, concurrency=3)
    with ThreadPoolExecutor(9) as threads:
        replies = list(threads.map(lambda seed: send_request(endpoint, seed=seed), range(18)))
    assert [reply.text for reply in replies] == ["done"] * 18
    assert chat_server.max_concurrency == 3


def test_request_without_free_slot_raises_infra_error(chat_server: ChatServer) -> None:
    chat_server.replies = [dataclasses.replace(SUCCESS, delay=10.0)]
    endpoint = make_endpoint(chat_server, concurrency=1)
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(send_request, endpoint)
        while not chat_server.requests:
            time.sleep(0.001)
        with pytest.raises(InfraError, match=r"raise policy\.endpoint\.concurrency"):
            send_request(endpoint, timeout=0.05)
        chat_server.shutdown_event.set()
        assert first.result(timeout=10).text == "done"


def test_usage_counts_are_exact_under_faults(chat_server: ChatServer) -> None:
    faults = [TRANSIENT_FAULTS[name] for name in TRANSIENT_FAULTS if name not in ("slow", "drip")]
    chat_server.replies = [
        reply for fault in faults for reply in (fault, SUCCESS, fault, SUCCESS)
    ] + [SUCCESS]
    endpoint = make_endpoint(chat_server, retries=100)
    with ThreadPoolExecutor(8) as threads:
        replies = list(threads.map(lambda seed: send_request(endpoint, seed=seed), range(40)))
        list(threads.map(lambda reply: endpoint.add_usage(7, 2), replies))
    assert [reply.text for reply in replies] == ["done"] * 40
    assert endpoint.usage == Usage(40, 2 * len(faults), 40 * 7, 40 * 2)
    assert len(chat_server.requests) == 40 + 2 * len(faults)


def test_fault_releases_concurrency_slot(chat_server: ChatServer) -> None:
    chat_server.replies = [500, 500, 500, 400]
    endpoint = make_endpoint(chat_server, concurrency=1)
    with pytest.raises(ConfigError):
        send_request(endpoint)
    for _ in range(2):
        with pytest.raises(ConfigError):
            send_request(endpoint)


# --- usage and prices ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "model", "price_options", "dollars"),
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
def test_usage_dollars_follow_prices(
    url: str, model: str, price_options: dict[str, float], dollars: float | None
) -> None:
    endpoint = ChatEndpoint(EndpointConfig(url, model, **price_options), environ={})
    for _ in range(4):
        endpoint.add_usage(250_000, 250_000)
    assert endpoint.usage.dollars == dollars


def test_usage_str_contains_counts_and_price() -> None:
    assert str(Usage(2, 1, 1_000, 20)) == (
        "2 responses, 1 failed requests, 1,000 + 20 tokens, at an unknown price"
    )
    assert str(Usage(dollars=1_234.5)).endswith("about $1,234.50")


def test_prices_are_dollars_per_million_tokens() -> None:
    for models in prices.PRICES.values():
        assert all(0 < prompt < completion < 1_000 for prompt, completion in models.values())


# --- configuration -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error_text"),
    [
        ({"url": ""}, "policy.endpoint.url='' must begin with http:// or https://"),
        ({"url": "localhost:8000"}, "url='localhost:8000' must begin with http:// or https://"),
        ({"model": ""}, "policy.endpoint.model must name"),
        ({"concurrency": 0}, "concurrency must be at least 1"),
        ({"retries": -1}, "retries must not be negative"),
        ({"timeout": 0.0}, "timeout must be above 0"),
        ({"timeout": float("inf")}, "timeout must be above 0 and at most 1,000,000 seconds"),
        ({"extra_body": "{"}, "extra_body='{' must be a JSON object, such as "),
        ({"extra_body": "[1]"}, "extra_body='\\[1\\]' must be a JSON object, such as "),
        ({"extra_body": "[" * 10**5}, "must be a JSON object, such as "),
        ({"extra_body": '{"temperature": 1, "top_k": 20}'}, "must not contain temperature: "),
        ({"extra_body": '{"model": "x", "max_tokens": 1}'}, "must not contain model, max_tokens: "),
    ],
)
def test_invalid_endpoint_config_raises_error(options: dict[str, Any], error_text: str) -> None:
    endpoint = EndpointConfig(**({"url": "http://x/v1", "model": "m"} | options))
    with pytest.raises(ConfigError, match=error_text):
        RunConfig(policy=PolicyConfig("openai", endpoint), prompt=PromptConfig("webarena"))


def test_extra_body_may_set_fields_without_an_option() -> None:
    endpoint = EndpointConfig("http://x/v1", "m", extra_body='{"top_k": 20}')
    assert RunConfig(policy=PolicyConfig("openai", endpoint), prompt=PromptConfig("webarena"))


@pytest.mark.parametrize("options", [{"url": "http://x/v1"}, {"model": "m"}])
def test_endpoint_of_local_policy_is_an_error(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"set --config\.policy\.kind=openai, or omit"):
        RunConfig(policy=PolicyConfig("weights", EndpointConfig(**options)))
    assert RunConfig(policy=PolicyConfig("weights", EndpointConfig(retries=-1)))


def test_endpoint_needs_template_unless_path_names_a_policy() -> None:
    endpoint = EndpointConfig("http://x/v1", "m")
    with pytest.raises(ConfigError, match=r"prompt\.template must be set"):
        RunConfig(policy=PolicyConfig("openai", endpoint))
    RunConfig(policy=PolicyConfig("openai", endpoint, path="runs/grpo/policy"))


def test_config_validation_depends_on_policy_kind() -> None:
    endpoint = EndpointConfig("http://x/v1", "m")
    cfg = RunConfig(policy=PolicyConfig("openai", endpoint), prompt=PromptConfig("webarena"))
    values = config.to_config_dict(cfg)
    values.engine.max_model_len = 100_000  # no training row is needed
    assert config.from_config_dict(values).engine.max_model_len == 100_000
    for options in (values.rollout, values.eval):
        options.top_k = 5
        with pytest.raises(ConfigError, match=r"rollout\.top_k and eval\.top_k must be 0"):
            config.from_config_dict(values)
        options.top_k = 0
    values.policy.kind = "weights"
    values.policy.endpoint = config.to_config_dict(RunConfig()).policy.endpoint
    values.engine.max_model_len = 512
    config.from_config_dict(values)


@pytest.mark.parametrize(
    "url", ["", "api.example/v1", "ftp://x/v1", "http://", "file:///etc/passwd"]
)
def test_http_client_rejects_invalid_urls(url: str) -> None:
    with pytest.raises(ConfigError, match="must begin with http"):
        HttpClient(url)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://[::1:8000/v1", "Invalid IPv6 URL"),
        ("http://localhost:8O00/v1", "Port could not be cast"),
        ("http://localhost:80000/v1", "Port out of range"),
        ("http://localhost:-1/v1", "Port could not be cast"),
    ],
)
def test_http_client_rejects_invalid_ports_and_brackets(url: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=f"is not valid: {problem}"):
        HttpClient(url)
