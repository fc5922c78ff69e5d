"""A folder as a web site on this machine, for the suites whose pages come as files."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.responses import FileResponse, Response
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from webagent_jax.suites.latency import Delayed
from webagent_jax.types import InfraError

_START_SECONDS = 20.0
_STOP_SECONDS = 10.0


class _KeptFiles(StaticFiles):
    """Keeps in memory what was asked for once: every episode asks for the same few files."""

    def __init__(self, *, directory: Path) -> None:
        super().__init__(directory=directory)
        self._kept: dict[str, Response] = {}

    async def get_response(self, path: str, scope: Scope) -> Response:
        if path not in self._kept:
            response = await super().get_response(path, scope)
            if not isinstance(response, FileResponse):
                return response
            body = Path(response.path).read_bytes()
            fresh = "no-cache" if response.media_type == "text/html" else "max-age=86400"
            self._kept[path] = Response(
                body, media_type=response.media_type, headers={"Cache-Control": fresh}
            )
        return self._kept[path]


class StaticSite:
    """Serves `folder` over HTTP on a free port of 127.0.0.1, from a thread of its own.

    `host` is "127.0.0.1:PORT", `url` the same with http in front. Pages come from a real server
    because a browser context can be held to the hosts it may reach: `file://` passes every proxy.
    `latency` is how many seconds late every answer comes.

    Raises InfraError when the server does not come up.
    """

    def __init__(self, folder: Path, latency: float = 0.0) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.host = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self.url = f"http://{self.host}"
        pages = Starlette(routes=[Mount("/", _KeptFiles(directory=folder))])
        self._server = uvicorn.Server(
            uvicorn.Config(
                Delayed(pages, latency) if latency else pages,
                loop="asyncio",
                lifespan="off",
                log_config=None,
                access_log=False,
                timeout_graceful_shutdown=1,
            )
        )
        self._thread = threading.Thread(
            target=self._server.run,
            kwargs={"sockets": [self._socket]},
            name="static-site",
            daemon=True,
        )
        self._thread.start()
        self._wait_until_up()

    def _wait_until_up(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not self._server.started:
            if time.monotonic() > deadline or not self._thread.is_alive():
                self.close()
                raise InfraError(f"the site at {self.url} did not come up")
            time.sleep(0.01)

    def close(self) -> None:
        """Stops the server. Closing twice is fine."""
        self._server.should_exit = True
        self._thread.join(_STOP_SECONDS)
        self._socket.close()

    def __enter__(self) -> StaticSite:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
