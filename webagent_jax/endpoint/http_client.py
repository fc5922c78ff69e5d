"""One request to an endpoint, and how to ask again.

What may be gone at the next try is Passing, what will be the same is Refused.
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

_LONGEST_PAUSE = 60.0  # seconds between two tries; more only where the endpoint asks for it
_QUOTED = 500  # characters of an answer that an error repeats
_PIECE = 2**16  # bytes read between two looks at the clock


class Passing(Exception):
    """No answer this time; the next try may have one."""

    def __init__(self, said: str, retry_after: float = 0.0) -> None:
        """`retry_after`: seconds that the endpoint asks to wait, at least."""
        super().__init__(said)
        self.retry_after = retry_after


class Refused(Exception):
    """An answer that will be the same at the next try."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(f"status {status}: {said}")
        self.status, self.said = status, said


@dataclass(frozen=True)
class Server:
    """Where chat requests go. It remembers nothing, so that any thread may ask."""

    url: str  # up to the version, "https://api.openai.com/v1"
    key: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"the url {self.url!r} must begin with http:// or https://")
        if not (self.key.isascii() and self.key.isprintable()) or " " in self.key:
            raise ConfigError(f"the key for {self.url} holds what no key has: export it anew")

    def ask(self, body: Mapping[str, Any], timeout: float) -> dict[str, Any]:
        """The answer to one chat request: its `choices[0]["message"]` is there, and a dict.

        Args:
            timeout: seconds for all of it; up to twice as many where it comes byte by byte.

        Raises:
            Passing: statuses 408, 409, 425, 429 and 5xx, no connection or a lost one, no answer in
                time, and one that is cut off, no JSON, or holds no message.
            Refused: any other status.
        """
        headers = {"Content-Type": "application/json"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        request = urllib.request.Request(
            f"{self.url.rstrip('/')}/chat/completions", json.dumps(body).encode(), headers
        )
        deadline = time.monotonic() + timeout
        try:
            with _opener().open(request, timeout=timeout) as response:
                answer = to_well_formed(json.loads(_read(response, deadline)))
        except urllib.error.HTTPError as error:
            raise self._fault(error, deadline) from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Passing(self._quoted(f"{type(error).__name__}: {error}")) from error
        match answer:
            case {"choices": [{"message": dict()}, *_]}:
                return answer
        raise Passing(self._quoted(f"no message in {answer}"))

    def _fault(self, error: urllib.error.HTTPError, deadline: float) -> Passing | Refused:
        with error:
            try:
                body = _read(cast(http.client.HTTPResponse, error.fp), deadline)
            except (OSError, http.client.HTTPException):
                body = b""  # the status says enough
        said = self._quoted(body.decode(errors="replace"))
        # A rate limit passes. An account without credit has the same status, and stays so.
        lasts = error.code == 429 and "insufficient_quota" in said
        if lasts or not (error.code in (408, 409, 425, 429) or error.code >= 500):
            return Refused(error.code, said)
        pause = retry_after(error.headers.get("Retry-After", ""))
        return Passing(f"status {error.code}: {said}", pause)

    def _quoted(self, text: str) -> str:
        """Some endpoints repeat the key that they do not like."""
        return (text.replace(self.key, "***") if self.key else text)[:_QUOTED]


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A request that is sent elsewhere loses its body, and would show its key there."""

    def redirect_request(self, *_: object, **__: object) -> None:
        return None


@lru_cache(maxsize=1)
def _opener() -> urllib.request.OpenerDirector:
    return urllib.request.build_opener(_NoRedirects)


def _read(response: http.client.HTTPResponse, deadline: float) -> bytes:
    pieces: list[bytes] = []
    while piece := response.read1(_PIECE):
        pieces.append(piece)
        if time.monotonic() > deadline:
            raise TimeoutError("the answer did not end in time")
    return b"".join(pieces)


def retry_after(value: str) -> float:
    """Seconds that a Retry-After header means (RFC 9110, section 10.2.3); 0 for what means none."""
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - time.time()
        except ValueError:
            return 0.0
    return max(seconds, 0.0) if math.isfinite(seconds) else 0.0


def persist(
    ask: Callable[[float], T],
    *,
    tries: int,
    pause: float,
    seconds: float = math.inf,
    draw: Callable[[], float] = lambda: 1.0,
) -> T:
    """Asks until there is an answer.

    Args:
        ask: is told how many seconds are left, and raises Passing for no answer.
        tries: at most.
        pause: seconds before the second try, doubled before each further one.
        seconds: for all tries and pauses.
        draw: factor of the next pause, so that those who were refused together come back apart.

    Raises:
        Passing: that of the last try, once `tries` or `seconds` are used up.
    """
    deadline = time.monotonic() + seconds
    for attempt in range(tries - 1):
        try:
            return ask(deadline - time.monotonic())
        except Passing as fault:
            wait = fault.retry_after + draw() * min(pause * 2**attempt, _LONGEST_PAUSE)
            if time.monotonic() + wait >= deadline:
                raise
        time.sleep(wait)
    return ask(deadline - time.monotonic())
