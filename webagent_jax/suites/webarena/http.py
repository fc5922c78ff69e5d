"""HTTP to the sites beside the browser: probes, sessions, REST, resets. Always bounded."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from webagent_jax.browser.context import origin_of
from webagent_jax.types import InfraError

_MOST = 4_000_000  # bytes of an answer that are read
_CHUNK = 65_536


@dataclass(frozen=True, slots=True)
class Reply:
    url: str  # after redirects
    status: int
    body: bytes
    location: str = ""  # where a redirect leads that was not followed

    @property
    def text(self) -> str:
        return self.body.decode(errors="replace")

    def json(self) -> Any:
        """Raises InfraError for what is none."""
        try:
            return json.loads(self.body)
        except ValueError as error:
            raise InfraError(f"{self.url.partition('?')[0]} answered no JSON: {error}") from error


def fetch(
    url: str,
    *,
    timeout: float,
    headers: Mapping[str, str] | None = None,
    data: Any = None,
) -> Reply:
    """The answer to a GET, or to a POST of `data` as JSON, whatever its status.

    Redirects are followed as long as they stay on the site: cookies and tokens must not leave it.
    No proxy is asked, for the browser asks none either.

    Raises:
        InfraError: no answer within `timeout` seconds; says why.
    """
    request = urllib.request.Request(url, headers=dict(headers or {}))
    if data is not None:
        request.data = json.dumps(data).encode()
        request.add_header("Content-Type", "application/json")
    end = time.monotonic() + timeout
    try:
        with _OPENER.open(request, timeout=timeout) as response:
            return Reply(response.url, response.status, _body(response, end))
    except urllib.error.HTTPError as error:
        with error:
            location = error.headers.get("Location", "") if 300 <= error.code < 400 else ""
            return Reply(error.url or url, error.code, b"", location)
    except urllib.error.URLError as error:
        raise InfraError(str(error.reason)) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise InfraError(str(error) or type(error).__name__) from error


def _body(response: http.client.HTTPResponse, end: float) -> bytes:
    """Raises TimeoutError when the bytes trickle in past the end."""
    parts: list[bytes] = []
    while sum(map(len, parts)) < _MOST and (part := response.read1(_CHUNK)):
        parts.append(part)
        if time.monotonic() > end:
            raise TimeoutError("the answer takes too long")
    return b"".join(parts)


class _StayOnSite(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, req: urllib.request.Request, *rest: Any) -> Any:
        """`rest`: what was answered, and at its end where that leads."""
        if origin_of(req.full_url) != origin_of(rest[-1]):
            return None
        return super().redirect_request(req, *rest)


_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}), _StayOnSite)
