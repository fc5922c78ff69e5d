"""Chromium executable and its launch arguments.

`python -m webagent_jax.browser.chromium` prints the path of a Chromium, installed if necessary.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

# The headless shell comes first: it is faster than Chromium and needs less memory.
_NAMES = (
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome-stable",
    "google-chrome",
)
_MAC_APPS = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
_PACKAGE = "chromium-headless-shell"
_INSTALL_TIMEOUT = 600.0  # seconds per command
_VERSION_TIMEOUT = 20.0  # seconds

# Chromium applies only the last --disable-features, so the list repeats those of Playwright.
_DISABLED_FEATURES = (
    "AvoidUnnecessaryBeforeUnloadCheckSync",
    "DestroyProfileOnBrowserClose",
    "HttpsUpgrades",
    "HttpsFirstBalancedModeAutoEnable",
    "LensOverlay",
    "MediaRouter",
    "PaintHolding",
    "ThirdPartyStoragePartitioning",
    "AvoidCorsURLLoaderRestartOnRedirect",
    "TcpPortRandomizationWin",
    "OptimizationHints",
    "NetworkTimeServiceQuerying",
    "AimEnabled",
    "PreconnectToSearch",
    "msForceBrowserSignIn",
    "msEdgeUpdateLaunchServicesPreferredVersion",
    # With this feature, every same-site navigation creates a new frame and compositor, which takes
    # much of the CPU time of a click on a link.
    "RenderDocument",
)

LAUNCH_ARGS = (
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # A page that failed to load must not reload without an action of the agent.
    "--disable-auto-reload",
    # WebRTC datagrams bypass the proxy, and the proxy restricts a context to its sites.
    # The headless shell and the full browser have different names for this switch.
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    f"--disable-features={','.join(_DISABLED_FEATURES)}",
    # One tile covers a usual viewport; the default tiles are squares of 256 pixels.
    "--default-tile-width=1280",
    "--default-tile-height=720",
)
"""Launch arguments of Chromium in addition to those of Playwright."""


class ChromiumMissingError(RuntimeError):
    """No Chromium on this machine; the message contains the command that fixes it."""


def find_executable(configured: str = "", *, headless: bool = True) -> str:
    """Return the path of the Chromium to use.

    `configured` has priority, then $WEBAGENT_CHROMIUM, then the headless shell, Chromium and Chrome
    on the PATH, then the Chromium that Playwright downloaded. Of several without a setting, the
    first that starts is used.

    Args:
        configured: value of `browser.executable_path`; may be empty.
        headless: whether the headless shell, which has no window, may be used.

    Raises:
        ChromiumMissingError: none of them exists, or that of a setting does not exist.
    """
    # A setting that is wrong is an error, so that no other Chromium runs unnoticed.
    if configured:
        path = shutil.which(configured)
        if path is None:
            raise ChromiumMissingError(
                f"browser.executable_path={configured} is not a program; "
                "set --config.browser.executable_path to a Chromium, or leave the option empty"
            )
        return path
    env_path = os.environ.get("WEBAGENT_CHROMIUM")
    if env_path:
        path = shutil.which(env_path)
        if path is None:
            raise ChromiumMissingError(
                f"WEBAGENT_CHROMIUM={env_path} is not a program; "
                "fix it with: unset WEBAGENT_CHROMIUM"
            )
        if not headless and "headless" in Path(env_path).name:
            raise ChromiumMissingError(
                f"WEBAGENT_CHROMIUM={env_path} opens no window; set it to a full Chromium"
            )
        return path
    paths = [path for path in _candidates() if headless or "headless" not in path]
    if not paths:
        shell_option = "--only-shell " if headless else ""
        raise ChromiumMissingError(
            f"Chromium is not installed{'' if headless else ' in the version with windows'}; "
            f"install it with: {sys.executable} -m playwright install {shell_option}chromium\n"
            "With --with-deps, and as root, the command also installs the libraries that it needs."
        )
    # The check takes a process. A single path has no alternative, and its launch reports the fault.
    if len(paths) == 1:
        return paths[0]
    return next(filter(_starts, paths), paths[0])


def _candidates() -> Iterator[str]:
    yield from filter(None, map(shutil.which, (*_NAMES, *_MAC_APPS)))
    default = Path.home() / (
        "Library/Caches/ms-playwright" if sys.platform == "darwin" else ".cache/ms-playwright"
    )
    root = Path(os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or default)
    for pattern in (
        "chromium_headless_shell-*/*/headless_shell",
        "chromium_headless_shell-*/*/chrome-headless-shell",
        "chromium-*/chrome-linux*/chrome",
        "chromium-*/chrome-mac*/Chromium.app/Contents/MacOS/Chromium",
        "chromium-*/chrome-mac*/Google Chrome for Testing.app/Contents/MacOS/"
        "Google Chrome for Testing",
    ):
        # The folder names end in revision numbers; descending order prefers the newest.
        yield from map(str, sorted(root.glob(pattern), reverse=True))


def _starts(path: str) -> bool:
    """Return whether a Chromium starts; without its libraries, or as a stub of snap, it fails."""
    try:
        result = subprocess.run(
            [path, "--version"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_VERSION_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return result.returncode == 0


def ensure_installed() -> str:
    """Return the path of a Chromium that starts, after installing a headless shell if necessary.

    Debian's package comes first. Playwright downloads the shell for other distributions and without
    root, then without the libraries that it needs.

    Raises:
        ChromiumMissingError: there is no Chromium, and neither can be installed.
    """
    # With the variable set, an installed package would not be used.
    if os.environ.get("WEBAGENT_CHROMIUM"):
        return find_executable()
    path = next(filter(_starts, _candidates()), None)
    if path is not None:
        return path
    apt_get = _apt_get()
    if not (
        apt_get
        and _run([*apt_get, "update"])
        and _run([*apt_get, "install", "--yes", "--no-install-recommends", _PACKAGE])
    ):
        options = ["--with-deps"] if apt_get else []
        _run([sys.executable, "-m", "playwright", "install", *options, "--only-shell", "chromium"])
    # If nothing was installed, this raises the error with the command to run.
    return find_executable()


def _run(command: list[str]) -> bool:
    """Run a command and return whether it succeeded."""
    try:
        result = subprocess.run(
            command,
            # The caller reads the path from stdout, so the command must not write there.
            stdout=sys.stderr,
            timeout=_INSTALL_TIMEOUT,
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    return result.returncode == 0


def _apt_get() -> list[str]:
    """Return the apt-get command as root; empty if there is none or it needs a password."""
    if not shutil.which("apt-get"):
        return []
    if os.geteuid() == 0:
        return ["apt-get"]
    if not shutil.which("sudo"):
        return []
    sudo_check = subprocess.run(
        ["sudo", "--non-interactive", "true"], capture_output=True, timeout=10, check=False
    )
    return [] if sudo_check.returncode else ["sudo", "--non-interactive", "apt-get"]


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{ensure_installed()}\n")
    except ChromiumMissingError as missing:
        sys.exit(str(missing))
