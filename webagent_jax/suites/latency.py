"""Sites that are far away: whoever measures what waiting for pages costs, puts them there."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Receive, Scope, Send


class Delayed:
    """Takes up every request so many seconds late, and any number of them meanwhile."""

    def __init__(self, app: ASGIApp, seconds: float) -> None:
        self._app, self._seconds = app, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(self._seconds)
        await self._app(scope, receive, send)
