"""HTTP client of chat endpoints: single requests, and retries with backoff.

A `TransientError` may not occur again on a retry; a `PermanentError` does.
"""

from __future__ import annotations

import http.client
import json
import math
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

from webagent_jax.config import ConfigError
from webagent_jax.unicode import to_well_formed

T = TypeVar("T")

_MAX_PAUSE_SECONDS = 60.0  # pause between two tries; a Retry-After header adds to it
_MAX_QUOTE_CHARS = 500  # characters of a response that an error message repeats
_CHUNK_BYTES = 2**16  # bytes read between two checks of the deadline

# Finish reasons of responses that the server did not complete: OpenRouter, SGLang and vLLM,
# DeepSeek, Zhipu.
_FAILURE_REASONS = ("error", "abort", "insufficient_system_resource", "network_error")
# Part of the error message of OpenAI for a response whose reasoning used up all tokens.
_OUTPUT_LIMIT_REACHED = "model output limit was reached"


class TransientError(Exception):
    """No response this time; the next try may succeed."""

    def __init__(self, message: str, retry_after: float = 0.0) -> None:
        """Store the minimum delay of the next try.

        Args:
            message: message of the endpoint, or description of the failure.
            retry_after: minimum seconds to wait, as requested by the endpoint.
        """
        super().__init__(message)
        self.retry_after = retry_after


class PermanentError(Exception):
    """Error response that a retry does not change."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"status {status}: {message}")
        self.status, self.message = status, message


@dataclass(frozen=True)
class HttpClient:
    """Stateless, thread-safe client of one chat endpoint."""

    url: str  # base url up to the version, such as "https://api.openai.com/v1"
    key: str = field(default="", repr=False)  # API key; empty for none

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            _ = parts.port  # raises ValueError for an invalid port
        except ValueError as error:
            raise ConfigError(
                f"the url {self.url!r} is not valid: {error}. Use the form http://HOST:PORT/v1, or "
                "http://[ADDRESS]:PORT/v1 for an IPv6 address"
            ) from error
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"the url {self.url!r} must begin with http:// or https://")
        # Checked here, because the error of http.client could quote the key.
        if not (self.key.isascii() and self.key.isprintable()) or " " in self.key:
            raise ConfigError(
                f"the key for {self.url} contains a space, or a character that is not printable "
                "ASCII: export it again without it"
            )

    def post_chat(self, body: Mapping[str, Any], timeout: float) -> dict[str, Any]:
        """Send a chat request and return the response, in which `choices[0]["message"]` is a dict.

        If its content is a list of parts (reasoning models of Mistral), it becomes their text. The
        error that reasoning used up all tokens (OpenAI) becomes an empty message that was cut.

        Args:
            body: JSON body of the request.
            timeout: seconds for the request; up to twice as many if the response arrives slowly.

        Raises:
            TransientError: status 408, 409, 425, 429 or 5xx, no connection or a lost one, a
                timeout, or a response that is incomplete, not JSON, without a message, or
                reports that its generation failed.
            PermanentError: any other status, or 429 for an account without credit; 402 if status
                400 reports such an account.
        """
        # Proxies such as Cloudflare reject the User-Agent of urllib with status 403.
        headers = {"Content-Type": "application/json", "User-Agent": "webagent_jax"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        request = urllib.request.Request(
            f"{self.url.rstrip('/')}/chat/completions", json.dumps(body).encode(), headers
        )
        deadline = time.monotonic() + timeout
        # urllib applies its timeout to each read; `_read` limits the complete response.
        try:
            with _opener().open(request, timeout=timeout) as response:
                data = to_well_formed(json.loads(_read(response, deadline)))
        except urllib.error.HTTPError as error:
            http_fault = self._fault(error, deadline)
            if error.code == 400 and _OUTPUT_LIMIT_REACHED in str(http_fault):
                return {"choices": [{"message": {"content": ""}, "finish_reason": "length"}]}
            raise http_fault from error
        except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
            # ValueError includes a body that is not JSON, such as the error page of a proxy.
            raise TransientError(self._quote(f"{type(error).__name__}: {error}")) from error
        match data:
            case {"choices": [{"message": dict() as message} as choice, *_]}:
                reason = choice.get("finish_reason")
                if choice.get("error") or reason in _FAILURE_REASONS:
                    fault = choice.get("error") or reason
                    raise TransientError(self._quote(f"the generation failed: {fault}"))
                message["content"] = _join_parts(message.get("content"))
                return data
        raise TransientError(self._quote(f"no message in {data}"))

    def _fault(
        self, error: urllib.error.HTTPError, deadline: float
    ) -> TransientError | PermanentError:
        with error:
            try:
                body = _read(cast(http.client.HTTPResponse, error.fp), deadline)
            except (OSError, http.client.HTTPException):
                body = b""  # the status is sufficient
        quote = self._quote(body.decode(errors="replace"))
        # Anthropic reports an account without credit like a rejected prompt.
        if error.code == 400 and "credit balance is too low" in quote:
            return PermanentError(402, quote)
        # A rate limit is transient. An account without credit has the same status permanently.
        has_no_credit = error.code == 429 and "insufficient_quota" in quote
        if has_no_credit or not (error.code in (408, 409, 425, 429) or error.code >= 500):
            return PermanentError(error.code, quote)
        pause = retry_after(error.headers.get("Retry-After", ""))
        return TransientError(f"status {error.code}: {quote}", pause)

    def _quote(self, text: str) -> str:
        """Return the text for an error message: one line, without the key.

        Some endpoints repeat the key.
        """
        line = " ".join(text.split())
        return (line.replace(self.key, "***") if self.key else line)[:_MAX_QUOTE_CHARS]


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Handler without redirects, which would drop the body and send the key to another server."""

    def redirect_request(self, *_: object, **__: object) -> None:
        return None


def _join_parts(content: Any) -> Any:
    """Return the text of a list of parts, without other parts such as thoughts."""
    if not isinstance(content, list):
        return content
    texts = [part.get("text") for part in content if isinstance(part, dict)]
    return "".join(text for text in texts if isinstance(text, str))


@lru_cache(maxsize=1)
def _opener() -> urllib.request.OpenerDirector:
    return urllib.request.build_opener(_NoRedirects)


def _read(response: http.client.HTTPResponse, deadline: float) -> bytes:
    chunks: list[bytes] = []
    while chunk := response.read1(_CHUNK_BYTES):
        chunks.append(chunk)
        if time.monotonic() > deadline:
            raise TimeoutError("the response did not end in time")
    return b"".join(chunks)


def retry_after(value: str) -> float:
    """Return the seconds of a Retry-After header (RFC 9110, section 10.2.3); 0 if it is invalid."""
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, OverflowError):
            return 0.0
    return max(seconds, 0.0) if math.isfinite(seconds) else 0.0


def retry_with_backoff(
    request: Callable[[float], T],
    *,
    tries: int,
    pause: float,
    seconds: float = math.inf,
    jitter: Callable[[], float] = lambda: 1.0,
) -> T:
    """Call `request` until it succeeds and return its result.

    Args:
        request: receives the remaining seconds; raises TransientError if the call may be repeated.
        tries: maximum number of calls.
        pause: seconds before the first retry; doubled before each later one.
        seconds: time limit of all tries and pauses.
        jitter: returns a random factor of the next pause, so that clients that failed at the same
            time do not retry at the same time.

    Raises:
        TransientError: the error of the last try, after `tries` calls or `seconds`.
    """
    deadline = time.monotonic() + seconds
    # The last try is outside of the loop, because its error is raised without a pause.
    for attempt in range(tries - 1):
        try:
            return request(deadline - time.monotonic())
        except TransientError as fault:
            wait = fault.retry_after + jitter() * min(pause * 2**attempt, _MAX_PAUSE_SECONDS)
            # A pause beyond the deadline leaves no time for another try.
            if time.monotonic() + wait >= deadline:
                raise
        time.sleep(wait)
    return request(deadline - time.monotonic())
