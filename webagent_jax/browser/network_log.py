"""Log of the requests of a browser context as HAR 1.2 entries.

Playwright writes the HAR of a context only when the context closes, and with all headers and
bodies. An evaluation needs the log while the final page is still open, and little of its content:
documents and data requests, the headers that show how a page was opened, form data, redirects, and
responses in JSON. Session cookies are omitted, because logs of episodes are shared.
"""

from __future__ import annotations

import asyncio
import datetime
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urljoin

from playwright.async_api import BrowserContext, Request, Response
from playwright.async_api import Error as PlaywrightError

Json = dict[str, Any]

_STATIC_TYPES = frozenset(
    {"image", "font", "stylesheet", "script", "media", "texttrack", "manifest"}
)
_REQUEST_HEADERS = frozenset(
    {
        "accept",
        "content-type",
        "cookie",
        "referer",
        "sec-fetch-dest",
        "sec-fetch-mode",
        "sec-fetch-site",
        "sec-fetch-user",
        "x-requested-with",
    }
)
_RESPONSE_HEADERS = frozenset({"content-type", "location"})
_MAX_BODY_BYTES = 65_536  # longer responses are logged without their text
_NO_RESPONSE = -1  # status of a request without a response, as in Playwright's HAR files


@dataclass
class _LoggedRequest:
    """Request and the known part of its response."""

    request: Request
    started: datetime.datetime
    start_time: float  # monotonic seconds
    response: Response | None = None
    # Reads the complete entry; None before the request ends.
    reader: asyncio.Task[Json | None] | None = None


@dataclass
class NetworkLog:
    """Requests of a context since the log was created, in the order of their start.

    Args:
        context: context to listen to.
    """

    context: BrowserContext
    _requests: dict[Request, _LoggedRequest] = field(default_factory=dict)
    _session_cookies: set[str] = field(default_factory=set)  # names of HttpOnly cookies

    def __post_init__(self) -> None:
        self.context.on("request", self._on_request)
        self.context.on("response", self._on_response)
        self.context.on("requestfinished", self._on_end)
        self.context.on("requestfailed", self._on_end)

    def stop(self) -> None:
        """Stop listening; the context remains usable."""
        self.context.remove_listener("request", self._on_request)
        self.context.remove_listener("response", self._on_response)
        self.context.remove_listener("requestfinished", self._on_end)
        self.context.remove_listener("requestfailed", self._on_end)

    async def entries(self, timeout: float) -> list[Json]:
        """Return the HAR entries so far.

        Args:
            timeout: seconds to wait for headers and bodies of requests that have ended. Entries
                that are still incomplete then contain the known part.
        """
        logged = list(self._requests.values())
        readers = [item.reader for item in logged if item.reader]
        if readers:
            await asyncio.wait(readers, timeout=timeout)
        # Cookies of the state that the context started with were never set by a response.
        for cookie in await self.context.cookies():
            if cookie.get("httpOnly"):
                self._session_cookies.add(cookie.get("name", ""))
        entries = [_result(item) or _partial_entry(item) for item in logged]
        for entry in entries:
            _remove_cookies(entry, self._session_cookies)
        return entries

    def _on_request(self, request: Request) -> None:
        if request.resource_type not in _STATIC_TYPES and request.url.startswith("http"):
            now = datetime.datetime.now(datetime.UTC)
            self._requests[request] = _LoggedRequest(request, now, time.monotonic())

    def _on_response(self, response: Response) -> None:
        if item := self._requests.get(response.request):
            item.response = response

    def _on_end(self, request: Request) -> None:
        if item := self._requests.get(request):
            item.reader = asyncio.ensure_future(self._read(item, time.monotonic()))

    async def _read(self, item: _LoggedRequest, end_time: float) -> Json | None:
        """Return the complete entry of a request that has ended; None if its page closed first."""
        response = item.response
        try:
            headers = await item.request.all_headers()
            response_headers = list(await response.headers_array()) if response else []
            body = await _json_body(response, response_headers) if response else None
        except PlaywrightError:
            return None
        cookies = []
        for header in response_headers:
            if header["name"].lower() == "set-cookie":
                cookies.append(cookie := _parse_cookie(header["value"]))
                if cookie["httpOnly"]:
                    self._session_cookies.add(cookie["name"])
        return _entry(item, headers, response_headers, cookies, body, end_time=end_time)


def _result(item: _LoggedRequest) -> Json | None:
    """Return the entry that the reader of a request returned; None if it has none."""
    reader = item.reader
    return reader.result() if reader is not None and reader.done() else None


def _partial_entry(item: _LoggedRequest) -> Json:
    """Return the entry of a request that has not ended, or whose page closed before it was read."""
    response_headers = (
        [{"name": name, "value": value} for name, value in item.response.headers.items()]
        if item.response
        else []
    )
    return _entry(item, item.request.headers, response_headers)


async def _json_body(response: Response, headers: list[Any]) -> str | None:
    """Return the text of a JSON response; None for other types, long texts and closed pages."""
    if "application/json" not in _header(headers, "content-type"):
        return None
    try:
        body = await response.body()
    except PlaywrightError:
        return None
    return body.decode(errors="replace") if len(body) <= _MAX_BODY_BYTES else None


def _entry(
    item: _LoggedRequest,
    headers: dict[str, str],
    response_headers: list[Any] | None = None,
    cookies: list[Json] | None = None,
    body: str | None = None,
    *,
    end_time: float | None = None,
) -> Json:
    request, response_headers = item.request, response_headers or []
    post_data = request.post_data_buffer
    location = _header(response_headers, "location")
    milliseconds = 1000 * ((end_time or time.monotonic()) - item.start_time)
    entry: Json = {
        "startedDateTime": item.started.isoformat(),
        "time": milliseconds,
        "request": {
            "method": request.method,
            "url": request.url,
            "httpVersion": "HTTP/1.1",
            "cookies": [],
            "headers": [
                {"name": name, "value": value}
                for name, value in headers.items()
                if name.lower() in _REQUEST_HEADERS
            ],
            "queryString": [],
            "headersSize": -1,
            "bodySize": len(post_data or b""),
        },
        "response": {
            "status": item.response.status if item.response else _NO_RESPONSE,
            "statusText": item.response.status_text if item.response else "",
            "httpVersion": "HTTP/1.1",
            "cookies": cookies or [],
            "headers": [
                {"name": header["name"], "value": header["value"]}
                for header in response_headers
                if header["name"].lower() in _RESPONSE_HEADERS
            ],
            "content": {"size": -1, "mimeType": _header(response_headers, "content-type")},
            # HAR requires the URL, not the header, which may be relative.
            "redirectURL": _join(request.url, location) if location else "",
            "headersSize": -1,
            "bodySize": -1,
        },
        "cache": {},
        "timings": {"send": -1, "wait": milliseconds, "receive": -1},
    }
    if post_data is not None:
        entry["request"]["postData"] = {
            "mimeType": headers.get("content-type", ""),
            "text": post_data.decode(errors="replace"),
        }
    if body is not None:
        entry["response"]["content"] |= {"size": len(body.encode()), "text": body}
    return entry


def _join(base: str, location: str) -> str:
    try:
        return urljoin(base, location)
    except ValueError:  # such as "http://["
        return location


def _header(headers: list[Any], name: str) -> str:
    """Return the first header of this name; empty without one."""
    return next((h["value"] for h in headers if h["name"].lower() == name), "")


def _parse_cookie(header: str) -> Json:
    """Return the cookie of a Set-Cookie header."""
    pair, *attributes = header.split(";")
    name, _, value = pair.partition("=")
    return {
        "name": name.strip(),
        "value": value.strip(),
        "httpOnly": any(attribute.strip().lower() == "httponly" for attribute in attributes),
    }


def _remove_cookies(entry: Json, names: set[str]) -> None:
    """Remove the cookies with these names from an entry."""
    response = entry["response"]
    response["cookies"] = [c for c in response["cookies"] if c["name"] not in names]
    for header in entry["request"]["headers"]:
        if header["name"].lower() == "cookie":
            pairs = [pair.strip() for pair in header["value"].split(";")]
            header["value"] = "; ".join(p for p in pairs if p.partition("=")[0] not in names)
