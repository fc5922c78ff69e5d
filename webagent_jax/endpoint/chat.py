"""A chat model behind an endpoint, for a whole run: places, tries, tokens and dollars."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from webagent_jax.config import ConfigError, EndpointConfig
from webagent_jax.endpoint import prices
from webagent_jax.endpoint.http_client import Passing, Refused, Server, persist
from webagent_jax.types import FinishReason, InfraError, Message


@dataclass(frozen=True, slots=True)
class ChatRequest:
    messages: Sequence[Message]
    max_tokens: int  # of the reply
    temperature: float
    top_p: float = 1.0
    seed: int = 0  # of the sampling, where the endpoint heeds it, and of the pauses between tries


@dataclass(frozen=True, slots=True)
class ChatReply:
    text: str  # thoughts that came apart from it stand before it, between think tags
    finish: FinishReason
    prompt_tokens: int | None  # None where the endpoint does not tell
    completion_tokens: int | None  # thoughts included


@dataclass(frozen=True, slots=True)
class Usage:
    """What an endpoint did for a run. A try without an answer may cost, and counts as a retry."""

    replies: int = 0
    retries: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    dollars: float | None = None  # None where a price is not known; discounts are left out

    def __str__(self) -> str:
        cost = "at a price not known" if self.dollars is None else f"about ${self.dollars:,.2f}"
        return (
            f"{self.replies:,} replies, {self.retries:,} retries, "
            f"{self.prompt_tokens:,} + {self.completion_tokens:,} tokens, {cost}"
        )


# What some endpoints refuse to be told, and the name it has there; empty: it is left out.
_NEGOTIABLE = {"max_tokens": "max_completion_tokens", "seed": "", "top_p": "", "temperature": ""}


class ChatEndpoint:
    """Any thread may ask; `concurrency` requests are on their way at once."""

    def __init__(
        self,
        config: EndpointConfig,
        *,
        environ: Mapping[str, str] = os.environ,
        log: Callable[[str], None] = lambda line: None,
        pause: float = 1.0,
    ) -> None:
        """Raises ConfigError for a url or a key that cannot work.

        Args:
            config: which endpoint, and how long to try.
            environ: holds the key, under the name that the config has for it.
            log: is told what people should know.
            pause: seconds before the second try, doubled before each further one.
        """
        self._config, self._log, self._pause = config, log, pause
        self._server = Server(config.url, environ.get(config.key_variable, "").strip())
        self._places = threading.BoundedSemaphore(config.concurrency)
        self._lock = threading.Lock()
        self._usage = Usage()
        self._unwanted: frozenset[str] = frozenset()  # of the names in _NEGOTIABLE
        self._hopeless = ""  # why no request will be answered

    @property
    def usage(self) -> Usage:
        """Of all requests so far."""
        config, usage = self._config, self._usage
        prompt, completion = prices.price(config.url, config.model)
        prompt = config.prompt_price if config.prompt_price >= 0 else prompt
        completion = config.completion_price if config.completion_price >= 0 else completion
        if prompt is None or completion is None:
            return usage
        dollars = (usage.prompt_tokens * prompt + usage.completion_tokens * completion) / 1e6
        return replace(usage, dollars=dollars)

    def spend(self, prompt_tokens: int, completion_tokens: int) -> None:
        """Adds the tokens of a reply to the usage."""
        self._add(prompt_tokens=prompt_tokens, completion_tokens=completion_tokens)

    def chat(self, request: ChatRequest, timeout: float) -> ChatReply:
        """Blocks until the reply is there, `timeout` seconds at most.

        Raises:
            ConfigError: no request will be answered before the user mends what the message says.
            InfraError: this one was not, within the tries and the time it has.
        """
        config = self._config
        begun = time.monotonic()
        if not self._places.acquire(timeout=timeout):
            raise InfraError(
                f"{config.url} had no place for a request within {timeout:.0f} s: "
                "raise policy.endpoint.concurrency, or lower rollout.contexts"
            )
        uniform = np.random.default_rng(request.seed).uniform
        try:
            return persist(
                lambda left: self._try(request, min(left, config.timeout)),
                tries=config.retries + 1,
                pause=self._pause,
                seconds=timeout - (time.monotonic() - begun),
                draw=lambda: float(uniform(0.5, 1.5)),
            )
        except Passing as fault:
            raise self._silent(fault) from fault
        except Refused as fault:
            raise self._told(fault) from fault
        finally:
            self._places.release()

    def _try(self, request: ChatRequest, timeout: float) -> ChatReply:
        if self._hopeless:
            raise ConfigError(self._hopeless)
        try:
            reply = _read(self._negotiate(request, max(timeout, 1e-3)))
        except Passing:
            self._add(retries=1)
            raise
        self._add(replies=1)
        return reply

    def _negotiate(self, request: ChatRequest, timeout: float) -> dict[str, Any]:
        """The answer. An option that a refusal names is not sent again, now and later."""
        unwanted = self._unwanted
        while True:
            body = _body(self._config.model, request, unwanted)
            try:
                answer = self._server.ask(body, timeout)
            except Refused as fault:
                named = [o for o in _NEGOTIABLE if o in body and o in fault.said]
                if fault.status not in (400, 422) or not named:
                    raise
                unwanted |= {named[0]}
            else:
                self._remember(unwanted)
                return answer

    def _remember(self, unwanted: frozenset[str]) -> None:
        with self._lock:
            fresh = unwanted - self._unwanted
            self._unwanted |= fresh
        for option in sorted(fresh):
            other = _NEGOTIABLE[option]
            how = f"it is sent as {other}" if other else "it is left out"
            self._log(f"{self._config.model} refuses the option {option}: {how}")

    def _add(self, **counts: int) -> None:
        with self._lock:
            sums = {name: getattr(self._usage, name) + count for name, count in counts.items()}
            self._usage = replace(self._usage, **sums)

    def _silent(self, fault: Passing) -> ConfigError | InfraError:
        """No reply within all tries. Where there never was one, there is something to mend."""
        told = f"{self._config.model} at {self._config.url} gave no reply: {fault}"
        if self._usage.replies:
            return InfraError(told)
        return ConfigError(
            f"{told}\nIt has given none so far: see that it is up, and look at policy.endpoint.url "
            "and policy.endpoint.timeout."
        )

    def _told(self, fault: Refused) -> ConfigError | InfraError:
        """A refusal in words. One of a single prompt, after others were answered, is a fault."""
        config, variable = self._config, self._config.key_variable
        where = f"{config.model} at {config.url}"
        match fault.status:
            case 401 if not self._server.key:
                mend = f"It wants a key: export it in {variable or 'a variable'}"
                mend += ", which policy.endpoint.key_variable names."
            case 401:
                mend = f"The key in {variable} is not valid there: export another."
            case 402 | 429:
                mend = "The account has no credit left: add some, or ask another endpoint."
            case 404:
                mend = "Look at policy.endpoint.model, and at policy.endpoint.url: it ends with the"
                mend += " version, such as /v1."
            case _ if self._usage.replies:
                return InfraError(f"{where} refuses this prompt, {fault}")
            case 403:
                mend = f"The key in {variable} may not use this model: change one of the two."
            case _:
                mend = "Set policy.endpoint, and engine.max_tokens and the sampling of rollout and"
                mend += " eval, to what it takes."
        self._hopeless = f"{where} refuses, {fault}\n{mend}"
        return ConfigError(self._hopeless)


def _body(model: str, request: ChatRequest, unwanted: frozenset[str]) -> dict[str, Any]:
    options = {
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "seed": request.seed,
    }
    named = {_NEGOTIABLE[o] if o in unwanted else o: value for o, value in options.items()}
    named.pop("", None)
    messages = [{"role": message.role, "content": message.text} for message in request.messages]
    return {"model": model, "messages": messages, **named}


def _read(answer: Mapping[str, Any]) -> ChatReply:
    """An empty message is a reply: all its tokens may have gone into thoughts that are kept back.

    Raises Passing for a message that is no text.
    """
    choice = answer["choices"][0]
    message = choice["message"]
    text = message.get("content") or ""
    if not isinstance(text, str):
        raise Passing("a message that is no text")
    # The first name is DeepSeek's, SGLang's and llama.cpp's, the second vLLM's and OpenRouter's.
    thoughts = message.get("reasoning_content") or message.get("reasoning")
    if isinstance(thoughts, str) and "<think>" not in text:
        text = f"<think> {thoughts.strip()} </think> {text}"
    told = answer.get("usage")
    usage = told if isinstance(told, dict) else {}
    return ChatReply(
        text=text,
        finish="length" if choice.get("finish_reason") == "length" else "stop",
        prompt_tokens=_count(usage.get("prompt_tokens")),
        completion_tokens=_count(usage.get("completion_tokens")),
    )


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and value >= 0 else None
