"""Launchers of Chromium on this machine or on another one that runs a Playwright server.

Start the server on the other machine:

    python -m playwright run-server --unsafe --host 0.0.0.0 --port 3000 --path /SECRET

and set `--config.browser.ws_endpoints=ws://THAT-MACHINE:3000/SECRET` on this one. The path is the
only access protection. The sites of a task must be reachable from the other machine.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import Protocol

from playwright.async_api import Browser, BrowserType
from playwright.async_api import Error as PlaywrightError

from webagent_jax.browser import chromium, process_memory
from webagent_jax.config import ConfigError
from webagent_jax.types import InfraError

_AUTOMATION_SWITCH = "--enable-automation"
_NO_DISPLAY = "Missing X server"  # in the log of Chromium


@dataclass(frozen=True, slots=True)
class LaunchedBrowser:
    """Running Chromium."""

    browser: Browser
    pid: int | None  # root process of Chromium; None on another machine


class BrowserLauncher(Protocol):
    """Launcher of Chromium processes."""

    async def start(self, chromium_type: BrowserType, timeout: float) -> LaunchedBrowser:
        """Launch a Chromium within `timeout` seconds.

        Raises:
            playwright.async_api.Error: Chromium does not start.
            InfraError: a retry cannot succeed.
        """
        ...


class LocalLauncher:
    """Launcher of Chromium processes on this machine.

    Args:
        executable: path of Chromium.
        sandbox: whether Chromium runs with its sandbox.
        headless: whether Chromium runs without a window.
    """

    def __init__(self, executable: str, *, sandbox: bool, headless: bool) -> None:
        self._executable = executable
        self._sandbox = sandbox
        self._headless = headless

    async def start(self, chromium_type: BrowserType, timeout: float) -> LaunchedBrowser:
        """Launch a Chromium within `timeout` seconds.

        Raises:
            ConfigError: there is no display for its window.
        """
        # Playwright does not report the process id; the unique argument finds it in /proc.
        mark = f"--webagent-instance={uuid.uuid4().hex}"
        try:
            browser = await chromium_type.launch(
                executable_path=self._executable,
                headless=self._headless,
                args=[*chromium.LAUNCH_ARGS, mark],
                chromium_sandbox=self._sandbox,
                timeout=timeout * 1000,
                # A signal must not close Chromium under running episodes; the pool closes it.
                handle_sigint=False,
                handle_sigterm=False,
                handle_sighup=False,
            )
        except PlaywrightError as error:
            if self._headless or _NO_DISPLAY not in error.message:
                raise
            raise ConfigError(
                "Chromium cannot open a window: there is no display.\n"
                "Run the command on a desktop, over ssh -X, or with xvfb-run."
            ) from error
        return LaunchedBrowser(browser, process_memory.find_process(mark))


class RemoteLauncher:
    """Launcher on a Playwright server, which runs a Chromium for the duration of each connection.

    Args:
        endpoint: WebSocket address of the server.
        executable: path on the machine of the server; empty for the Chromium of Playwright.
        sandbox: whether Chromium runs with its sandbox.
    """

    def __init__(self, endpoint: str, executable: str, *, sandbox: bool) -> None:
        self._endpoint = endpoint
        self._options = {
            "args": [*chromium.LAUNCH_ARGS, _AUTOMATION_SWITCH],
            "chromiumSandbox": sandbox,
        }
        if executable:
            self._options["executablePath"] = executable

    async def start(self, chromium_type: BrowserType, timeout: float) -> LaunchedBrowser:
        """Launch a Chromium within `timeout` seconds.

        Raises:
            InfraError: the server dropped the launch arguments, which isolate the contexts.
        """
        browser = await chromium_type.connect(
            self._endpoint,
            timeout=timeout * 1000,
            headers={
                "x-playwright-browser": "chromium",
                "x-playwright-launch-options": json.dumps(self._options),
            },
        )
        await self._check_launch_args(browser)
        # Memory limits do not apply to processes of another machine.
        return LaunchedBrowser(browser, None)

    async def _check_launch_args(self, browser: Browser) -> None:
        """Check that the server applies the launch arguments; without --unsafe it drops them."""
        devtools = await browser.new_browser_cdp_session()
        try:
            # This call succeeds only in a Chromium that received _AUTOMATION_SWITCH with the rest.
            await devtools.send("Browser.getBrowserCommandLine")
        except PlaywrightError as error:
            await browser.close()
            raise InfraError(
                f"the Playwright server at {self._endpoint} starts Chromium without the launch "
                "arguments of webagent_jax; start it with: playwright run-server --unsafe"
            ) from error
        await devtools.detach()
