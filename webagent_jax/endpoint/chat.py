"""Chat model of an endpoint, with limits on concurrency, retries, and usage counts of the run."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from webagent_jax.config import ConfigError, EndpointConfig
from webagent_jax.endpoint import prices
from webagent_jax.endpoint.http_client import (
    HttpClient,
    PermanentError,
    TransientError,
    retry_with_backoff,
)
from webagent_jax.endpoint.rejected_options import RejectedOptions
from webagent_jax.types import FinishReason, InfraError, Message

REJECTED_PROMPT = "rejects this prompt"
"""Part of the message of the InfraError for a prompt that the endpoint does not accept."""

_NO_CONTENT = "(no content)"  # replaces empty responses in requests


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """Conversation and sampling options of one request."""

    messages: Sequence[Message]
    max_tokens: int  # limit of the response
    temperature: float
    top_p: float = 1.0
    seed: int = 0  # seed of the sampling, if the endpoint supports it, and of the retry pauses


@dataclass(frozen=True, slots=True)
class ChatResponse:
    """Response of the model to one request."""

    text: str  # separate reasoning content comes first, between think tags
    finish: FinishReason
    prompt_tokens: int | None  # None if the endpoint does not report it
    completion_tokens: int | None  # reasoning tokens included; None if not reported


@dataclass(frozen=True, slots=True)
class Usage:
    """Usage of an endpoint in a run."""

    responses: int = 0  # responses received
    failed_requests: int = 0  # requests without a response; they may cost money too
    prompt_tokens: int = 0
    completion_tokens: int = 0
    dollars: float | None = None  # cost in US dollars without discounts; None if a price is unknown

    def __str__(self) -> str:
        cost = "at an unknown price" if self.dollars is None else f"about ${self.dollars:,.2f}"
        return (
            f"{self.responses:,} responses, {self.failed_requests:,} failed requests, "
            f"{self.prompt_tokens:,} + {self.completion_tokens:,} tokens, {cost}"
        )


class ChatEndpoint:
    """Thread-safe client of the chat model that sends `concurrency` requests at the same time."""

    def __init__(
        self,
        config: EndpointConfig,
        *,
        environ: Mapping[str, str] = os.environ,
        log: Callable[[str], None] = lambda line: None,
        pause: float = 1.0,
    ) -> None:
        """Read the key from the environment.

        Args:
            config: endpoint, timeouts and number of retries.
            environ: environment with the key, under the name in the config.
            log: receives messages for the user.
            pause: seconds before the second try; doubled before each further one.

        Raises:
            ConfigError: the url or the key is invalid.
        """
        self._config, self._pause = config, pause
        self._client = HttpClient(config.url, environ.get(config.api_key_env, "").strip())
        self._extra_body: dict[str, Any] = json.loads(config.extra_body or "{}")
        self._semaphore = threading.BoundedSemaphore(config.concurrency)
        self._lock = threading.Lock()
        self._usage = Usage()
        self._num_started = 0  # calls of `chat` that got a slot
        self._num_failed = 0  # those that failed after all tries
        self._rejected_options = RejectedOptions(log)
        self._fatal_error = ""  # message of the error that makes all requests fail

    @property
    def usage(self) -> Usage:
        """Usage of all requests so far."""
        config, usage = self._config, self._usage
        prompt, completion = prices.price(config.url, config.model)
        prompt = config.prompt_usd_per_mtok if config.prompt_usd_per_mtok >= 0 else prompt
        completion = (
            config.completion_usd_per_mtok if config.completion_usd_per_mtok >= 0 else completion
        )
        if prompt is None or completion is None:
            return usage
        dollars = (usage.prompt_tokens * prompt + usage.completion_tokens * completion) / 1e6
        return replace(usage, dollars=dollars)

    def add_usage(self, prompt_tokens: int, completion_tokens: int) -> None:
        """Add the tokens of a response to the usage."""
        self._add_counts(prompt_tokens=prompt_tokens, completion_tokens=completion_tokens)

    def chat(self, request: ChatRequest, timeout: float) -> ChatResponse:
        """Send a request and return the response.

        Args:
            request: conversation and sampling options.
            timeout: seconds for the wait for a slot and for all tries. The last try may exceed
                them: a slow response takes up to twice the time that is left, and a try sends
                another request after each rejected option.

        Raises:
            ConfigError: all requests fail until the user fixes the problem in the message.
            InfraError: this request failed within its tries and its time.
        """
        config = self._config
        start = time.monotonic()
        # The wait for a slot counts against the time of the request.
        if not self._semaphore.acquire(timeout=timeout):
            raise InfraError(
                f"no request slot of {config.url} became free within {timeout:.0f} s: "
                "raise policy.endpoint.concurrency, or lower rollout.max_concurrent_episodes"
            )
        with self._lock:
            self._num_started += 1
        # Seeded by the request, so that a run repeats with the same pauses.
        uniform = np.random.default_rng(request.seed).uniform
        try:
            return retry_with_backoff(
                lambda remaining: self._try(request, min(remaining, config.timeout)),
                tries=config.retries + 1,
                pause=self._pause,
                seconds=timeout - (time.monotonic() - start),
                jitter=lambda: float(uniform(0.5, 1.5)),
            )
        except TransientError as fault:
            raise self._no_response_error(fault, self._count_failure()) from fault
        except PermanentError as fault:
            raise self._rejection_error(fault, self._count_failure()) from fault
        finally:
            self._semaphore.release()

    def _try(self, request: ChatRequest, timeout: float) -> ChatResponse:
        # Checked before each try: requests that wait for their turn fail without another call.
        if self._fatal_error:
            raise ConfigError(self._fatal_error)
        try:
            # A timeout of 0 would make the socket non-blocking, and a negative one is an error.
            response = _read(
                self._rejected_options.post_chat(
                    self._client,
                    self._extra_body | _body(self._config.model, request),
                    max(timeout, 1e-3),
                )
            )
        except (TransientError, PermanentError):
            self._add_counts(failed_requests=1)
            raise
        self._add_counts(responses=1)
        return response

    def _add_counts(self, **counts: int) -> None:
        with self._lock:
            sums = {name: getattr(self._usage, name) + count for name, count in counts.items()}
            self._usage = replace(self._usage, **sums)

    def _count_failure(self) -> bool:
        """Count a failed request, and return whether the endpoint fails for all requests.

        One failure before the first response may concern only its prompt, so it is conclusive only
        if no other request is in flight, or after as many failures as there are slots.
        """
        with self._lock:
            self._num_failed += 1
            max_failures = min(self._num_started, self._config.concurrency)
            return not self._usage.responses and self._num_failed >= max_failures

    def _no_response_error(
        self, fault: TransientError, is_conclusive: bool
    ) -> ConfigError | InfraError:
        """Return the error for no response: ConfigError if the endpoint never responds."""
        message = f"{self._config.model} at {self._config.url} sent no response: {fault}"
        if not is_conclusive:
            return InfraError(message)
        return ConfigError(
            f"{message}\nIt has sent none in this run: check that the server is running, and check "
            "policy.endpoint.url and policy.endpoint.timeout."
        )

    def _rejection_error(
        self, fault: PermanentError, is_conclusive: bool
    ) -> ConfigError | InfraError:
        """Return the error for a rejection: InfraError if it may concern only this prompt."""
        config, variable = self._config, self._config.api_key_env
        endpoint = f"{config.model} at {config.url}"
        # 401, 402, 404 and 429 concern key, account or address, so all requests fail. Any other
        # status may concern only this prompt.
        match fault.status:
            case 401 if not self._client.key:
                fix = f"The endpoint requires a key: export it in {variable or 'a variable'}"
                fix += ", which policy.endpoint.api_key_env names."
            case 401:
                fix = f"The key in {variable} is not valid for this endpoint: export another one."
            case 402 | 429:
                fix = "The account has no credit left: add credit, or use another endpoint."
            case 404:
                fix = "Check policy.endpoint.model and policy.endpoint.url: the url ends with the"
                fix += " version, such as /v1."
            case _ if not is_conclusive:
                return InfraError(f"{endpoint} {REJECTED_PROMPT}, {fault}")
            case 403:
                fix = f"The key in {variable} may not use this model: change the key or the model."
            case _:
                fix = "Set policy.endpoint, engine.max_model_len and the sampling options of"
                fix += " rollout and eval to values that the endpoint accepts."
        self._fatal_error = f"{endpoint} rejects the request, {fault}\n{fix}"
        return ConfigError(self._fatal_error)


def _body(model: str, request: ChatRequest) -> dict[str, Any]:
    return {
        "model": model,
        "messages": [
            {"role": message.role, "content": _content(message)} for message in request.messages
        ],
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "seed": request.seed,
    }


def _content(message: Message) -> str:
    # Mistral and others reject conversations with an empty response.
    is_empty = message.role == "assistant" and not message.text.strip()
    return _NO_CONTENT if is_empty else message.text


def _read(data: Mapping[str, Any]) -> ChatResponse:
    """Return the response in `data`; raise TransientError if its message is not text.

    An empty message is valid: the model may have spent all its tokens on hidden reasoning.
    """
    choice = data["choices"][0]
    message = choice["message"]
    text = message.get("content") or ""
    if not isinstance(text, str):
        raise TransientError("the message is not text")
    # DeepSeek, SGLang and llama.cpp use the first name, vLLM and OpenRouter the second.
    thoughts = message.get("reasoning_content") or message.get("reasoning")
    if isinstance(thoughts, str) and thoughts.strip() and "<think>" not in text:
        text = f"<think> {thoughts.strip()} </think> {text}"
    usage_data = data.get("usage")
    usage = usage_data if isinstance(usage_data, dict) else {}
    return ChatResponse(
        text=text,
        finish="length" if choice.get("finish_reason") == "length" else "stop",
        prompt_tokens=_token_count(usage.get("prompt_tokens")),
        completion_tokens=_token_count(usage.get("completion_tokens")),
    )


def _token_count(value: Any) -> int | None:
    return value if isinstance(value, int) and value >= 0 else None
