"""Which Chromium to drive, and with which switches.

`python -m webagent_jax.browser.chromium` prints the path of one, after installing it if need be.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

# The headless shell comes first: a third of the memory of the full browser, and twice its speed.
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
_INSTALL_TIMEOUT = 600.0  # seconds for one apt-get command

# Chromium heeds the last --disable-features alone, so Playwright's are told again before ours.
_FEATURES_OFF = (
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
    # Every load of a page of the same site would build its frame anew, compositor and all, where
    # the one at hand serves as well: a fifth of the processor time of a click on a link.
    "RenderDocument",
)

SWITCHES = (
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-auto-reload",  # of a page that did not load: what an agent does not do, is not done
    # WebRTC sends datagrams past any proxy, and the proxy is what holds a context to its sites.
    # The headless shell knows this switch by one name, the full browser by another.
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    f"--disable-features={','.join(_FEATURES_OFF)}",
    # A usual viewport is drawn at once, not in squares of 256.
    "--default-tile-width=1280",
    "--default-tile-height=720",
)
"""On top of Playwright's own."""


class ChromiumMissing(RuntimeError):
    """There is no Chromium on this machine. The message is one command that mends it."""


def find() -> str:
    """Path of the Chromium to use. Raises ChromiumMissing.

    $WEBAGENT_CHROMIUM wins; then the headless shell, Chromium and Chrome on the PATH; then the
    one that Playwright downloaded.
    """
    named = os.environ.get("WEBAGENT_CHROMIUM")
    if named:
        if not shutil.which(named):
            raise ChromiumMissing(
                f"WEBAGENT_CHROMIUM={named} is not a program; mend it with: unset WEBAGENT_CHROMIUM"
            )
        return named
    found = next(_candidates(), None)
    if found is None:
        raise ChromiumMissing(
            "Chromium is not installed; install it with: "
            f"{sys.executable} -m playwright install --with-deps --only-shell chromium"
        )
    return found


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
    ):
        yield from map(str, sorted(root.glob(pattern), reverse=True))


def ensure() -> str:
    """`find()`, after installing Debian's headless shell if need be. Raises ChromiumMissing."""
    try:
        return find()
    except ChromiumMissing:
        apt_get = _apt_get()
        if not apt_get or os.environ.get("WEBAGENT_CHROMIUM"):
            raise
    for command in (["update"], ["install", "--yes", "--no-install-recommends", _PACKAGE]):
        done = subprocess.run(
            [*apt_get, *command],
            stdout=sys.stderr,
            timeout=_INSTALL_TIMEOUT,
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            check=False,
        )
        if done.returncode:
            break
    return find()


def _apt_get() -> list[str]:
    """How to call apt-get with the right to install; empty when that cannot be done unasked."""
    if not shutil.which("apt-get"):
        return []
    if os.geteuid() == 0:
        return ["apt-get"]
    if not shutil.which("sudo"):
        return []
    asked = subprocess.run(
        ["sudo", "--non-interactive", "true"], capture_output=True, timeout=10, check=False
    )
    return [] if asked.returncode else ["sudo", "--non-interactive", "apt-get"]


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{ensure()}\n")
    except ChromiumMissing as missing:
        sys.exit(str(missing))
