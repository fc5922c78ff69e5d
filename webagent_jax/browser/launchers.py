"""Where Chromium is started: on this machine, or on another that runs a Playwright server.

    python -m playwright run-server --unsafe --host 0.0.0.0 --port 3000 --path /SECRET

on that machine, and `--config.browser.endpoints=ws://THAT-MACHINE:3000/SECRET` here. The path is
all that keeps others from it. The sites of a task must be reachable from there.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import Protocol

from playwright.async_api import Browser, BrowserType
from playwright.async_api import Error as PlaywrightError

from webagent_jax.browser import chromium, process_memory
from webagent_jax.types import InfraError

_TELLS_SWITCHES = "--enable-automation"


@dataclass(frozen=True, slots=True)
class Started:
    browser: Browser
    pid: int | None  # of its first process, when it is one of this machine


class Machine(Protocol):
    """Starts one more Chromium."""

    async def start(self, chromium_type: BrowserType, timeout: float) -> Started:
        """Raises playwright's Error, and InfraError for what a second try cannot mend."""
        ...


class ThisMachine:
    def __init__(self, executable: str, *, sandbox: bool) -> None:
        self._executable = executable
        self._sandbox = sandbox

    async def start(self, chromium_type: BrowserType, timeout: float) -> Started:
        mark = f"--webagent-instance={uuid.uuid4().hex}"
        browser = await chromium_type.launch(
            executable_path=self._executable,
            args=[*chromium.SWITCHES, mark],
            chromium_sandbox=self._sandbox,
            timeout=timeout * 1000,
            handle_sigint=False,
            handle_sigterm=False,
            handle_sighup=False,
        )
        return Started(browser, process_memory.find_process(mark))


class RemoteMachine:
    """A Playwright server, which starts a Chromium for each connection and ends it with it."""

    def __init__(self, endpoint: str, executable: str, *, sandbox: bool) -> None:
        """`executable` is a path on that machine; empty means the Chromium that Playwright has."""
        self._endpoint = endpoint
        self._options = {"args": [*chromium.SWITCHES, _TELLS_SWITCHES], "chromiumSandbox": sandbox}
        if executable:
            self._options["executablePath"] = executable

    async def start(self, chromium_type: BrowserType, timeout: float) -> Started:
        browser = await chromium_type.connect(
            self._endpoint,
            timeout=timeout * 1000,
            headers={
                "x-playwright-browser": "chromium",
                "x-playwright-launch-options": json.dumps(self._options),
            },
        )
        await self._check_switches(browser)
        return Started(browser, None)

    async def _check_switches(self, browser: Browser) -> None:
        """A server without --unsafe drops our switches without a word, and isolation with them."""
        devtools = await browser.new_browser_cdp_session()
        try:
            # Answered only by a Chromium that was given _TELLS_SWITCHES, which is one of ours.
            await devtools.send("Browser.getBrowserCommandLine")
        except PlaywrightError as error:
            await browser.close()
            raise InfraError(
                f"the Playwright server at {self._endpoint} starts Chromium without our switches; "
                "start it with: playwright run-server --unsafe"
            ) from error
        await devtools.detach()
