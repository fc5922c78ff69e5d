"""HTTP server thread for local sites, static sites, latency, and checks of the client."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from pathlib import Path
from typing import Self

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from webagent_jax.types import InfraError

_START_SECONDS = 20.0
_STOP_SECONDS = 10.0

_FileVersion = tuple[int, int] | None  # time of the last change in nanoseconds, size in bytes

LOCAL_HOSTS_ONLY = Middleware(TrustedHostMiddleware, allowed_hosts=["localhost", "127.0.0.1"])
"""Protection against DNS rebinding: only localhost and 127.0.0.1 are accepted as Host."""


def is_same_origin(request: Request) -> bool:
    """Return whether a POST comes from a page of this server.

    Protects against CSRF: a POST that another website triggers has the Origin of that website.
    """
    return request.headers.get("origin") == f"http://{request.headers['host']}"


class LatencyMiddleware:
    """ASGI middleware that delays every request, to measure the cost of waiting for pages."""

    def __init__(self, app: ASGIApp, seconds: float) -> None:
        self._app, self._seconds = app, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Wait, then call the application."""
        await asyncio.sleep(self._seconds)
        await self._app(scope, receive, send)


def make_server(app: ASGIApp, latency: float = 0.0) -> uvicorn.Server:
    """Return an HTTP server of an application.

    Args:
        app: application to serve; it has no startup or shutdown events.
        latency: delay of every response in seconds.
    """
    return uvicorn.Server(
        uvicorn.Config(
            LatencyMiddleware(app, latency) if latency else app,
            loop="asyncio",
            lifespan="off",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=1,
        )
    )


class _CachedStaticFiles(StaticFiles):
    """Static files with a cache in memory: every episode requests the same few files."""

    def __init__(self, *, directory: Path) -> None:
        super().__init__(directory=directory, html=True)  # a folder's address shows its index.html
        # Response of a path, with the file and its version.
        self._responses: dict[tuple[str, bool], tuple[Path, _FileVersion, Response]] = {}

    async def get_response(self, path: str, scope: Scope) -> Response:
        # `path` never ends with a slash. A folder's address without one is redirected to its page.
        key = (path, scope["path"].endswith("/"))
        # Other methods are refused, whether the file is cached or not.
        if key in self._responses and scope["method"] in ("GET", "HEAD"):
            file, version, cached = self._responses[key]
            # SiteTask.reset may write files.
            if _file_version(file) == version:
                return cached
        response = await super().get_response(path, scope)
        # The folder's 404.html is a file too; its status is not that of a page.
        if not isinstance(response, FileResponse) or response.status_code != 200:
            return response
        file = Path(response.path)
        version = _file_version(file)  # before the read, because the file may change during it
        cache_control = "no-cache" if response.media_type == "text/html" else "max-age=86400"
        cached = Response(
            file.read_bytes(),
            media_type=response.media_type,
            headers={"Cache-Control": cache_control},
        )
        self._responses[key] = (file, version, cached)
        return cached


def _file_version(file: Path) -> _FileVersion:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


class LocalServer:
    """HTTP server of an ASGI application, on a free port of 127.0.0.1 and in its own thread.

    Args:
        app: application to serve.
        latency: delay of every response in seconds.

    Attributes:
        port: port of the server.
        address: "127.0.0.1:PORT".
        url: "http://127.0.0.1:PORT".

    Raises:
        InfraError: the server does not start.
    """

    def __init__(self, app: ASGIApp, latency: float = 0.0) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port = int(self._socket.getsockname()[1])
        self.address = f"127.0.0.1:{self.port}"
        self.url = f"http://{self.address}"
        self._server = make_server(app, latency)
        self._thread = threading.Thread(
            target=self._server.run,
            kwargs={"sockets": [self._socket]},
            name="local-server",
            daemon=True,
        )
        self._thread.start()
        self._wait_until_started()

    def _wait_until_started(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not self._server.started:
            if time.monotonic() > deadline or not self._thread.is_alive():
                self.close()
                raise InfraError(f"the site at {self.url} did not start")
            time.sleep(0.01)

    def close(self) -> None:
        """Stop the server; a second call has no effect."""
        self._server.should_exit = True
        self._thread.join(_STOP_SECONDS)
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class StaticSite(LocalServer):
    """HTTP server of a folder.

    Pages need a real server because the proxy of a browser context restricts the hosts that it
    reaches, and `file://` URLs bypass proxies.

    Args:
        folder: folder to serve.
        latency: delay of every response in seconds.

    Raises:
        InfraError: the server does not start.
    """

    def __init__(self, folder: Path, latency: float = 0.0) -> None:
        pages = Starlette(routes=[Mount("/", _CachedStaticFiles(directory=folder))])
        super().__init__(pages, latency)
