"""HTTP client for probes, sessions, REST and resets of the sites, with bounded time and size."""

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

_MAX_BODY_BYTES = 4_000_000  # longer bodies are truncated
_CHUNK_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """Response to an HTTP request."""

    url: str  # address after redirects
    status: int
    body: bytes  # empty for a status of 300 or above
    location: str = ""  # target of a redirect that was not followed

    @property
    def text(self) -> str:
        """Body as text."""
        return self.body.decode(errors="replace")

    def json(self) -> Any:
        """Return the body as JSON.

        Raises:
            InfraError: the body is not JSON.
        """
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError) as error:
            raise InfraError(
                f"{self.url.partition('?')[0]} did not return JSON: {error}"
            ) from error


def fetch(
    url: str,
    *,
    timeout: float,
    headers: Mapping[str, str] | None = None,
    data: Any = None,
) -> HttpResponse:
    """Return the response to a GET, or to a POST of `data` as JSON, with any status.

    Only redirects within the origin are followed, because cookies and tokens must not leave the
    site. No proxy is used, as in the browser.

    Args:
        url: address.
        timeout: seconds for the complete response.
        headers: further headers.
        data: JSON value to post; None for a GET.

    Raises:
        InfraError: there is no complete response within `timeout` seconds.
    """
    request = urllib.request.Request(url, headers=dict(headers or {}))
    if data is not None:
        request.data = json.dumps(data).encode()
        request.add_header("Content-Type", "application/json")
    # urllib applies its timeout to each read; `_read_body` limits the complete response.
    end = time.monotonic() + timeout
    try:
        with _OPENER.open(request, timeout=timeout) as response:
            return HttpResponse(response.url, response.status, _read_body(response, end))
    except urllib.error.HTTPError as error:
        with error:
            # A redirect to another origin arrives here as an error, because it is not followed.
            location = error.headers.get("Location", "") if 300 <= error.code < 400 else ""
            return HttpResponse(error.url or url, error.code, b"", location)
    except urllib.error.URLError as error:
        raise InfraError(str(error.reason)) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise InfraError(str(error) or type(error).__name__) from error


def _read_body(response: http.client.HTTPResponse, end: float) -> bytes:
    """Read the body.

    Raises:
        TimeoutError: it is not complete at the time `end`.
    """
    parts: list[bytes] = []
    while sum(map(len, parts)) < _MAX_BODY_BYTES and (part := response.read1(_CHUNK_BYTES)):
        parts.append(part)
        if time.monotonic() > end:
            raise TimeoutError("the response takes too long")
    return b"".join(parts)


class _SameOriginRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, req: urllib.request.Request, *rest: Any) -> Any:
        """Return the next request if the new address, the last of `rest`, has the same origin."""
        # None makes urllib raise HTTPError with the status of the redirect.
        if origin_of(req.full_url) != origin_of(rest[-1]):
            return None
        return super().redirect_request(req, *rest)


# The empty handler ignores the proxies in environment variables.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}), _SameOriginRedirects)
