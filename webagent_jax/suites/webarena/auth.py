"""Authentication states of browsers, created with the login forms of the sites and reused.

One episode at a time uses a state, so that signing out affects no other episode. A state is checked
before each use and created again if the agent has signed out or the session has expired.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from webagent_jax.browser import BrowserPool, Session
from webagent_jax.browser.context import origin_of
from webagent_jax.config import ConfigError
from webagent_jax.suites.folders import create_writable_folder
from webagent_jax.suites.webarena import http, sites
from webagent_jax.types import Action, ActionKind, InfraError

_MIN_COOKIE_SECONDS = 60.0  # a cookie that expires sooner counts as expired
_SINGLE_SESSION_SITE = "shopping_admin"  # by default a login ends other sessions of the account
_SHARING_FIX = (
    "episodes at the same time need admin/security/admin_account_sharing=1, which "
    "third_party/webarena/site.sh sets"
)


@dataclass(frozen=True)
class Account:
    """User name and password on a site."""

    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class _LoginPage:
    """Login form of a site, and a page that requires a login."""

    login_path: str
    protected_path: str
    marker_text: str = ""  # text of the protected page; empty if it redirects without a login


_LOGIN_PAGES: Mapping[str, _LoginPage] = {
    "shopping": _LoginPage("/customer/account/login/", "/wishlist/"),
    "shopping_admin": _LoginPage("", "/dashboard", marker_text="Dashboard"),
    "reddit": _LoginPage("/login", "/user/{user}/account", marker_text="Delete"),
    "gitlab": _LoginPage("/users/sign_in", "/-/profile"),
}

_DEFAULT_ACCOUNTS: Mapping[str, Account] = {
    "shopping": Account("emma.lopez@gmail.com", "Password.123"),
    "shopping_admin": Account("admin", "admin1234"),
    "shopping_site_admin": Account("admin", "admin1234"),
    "reddit": Account("MarvelsGrantMan136", "test1234"),
    "gitlab": Account("byteblaze", "hello1234"),
}
"""Accounts of WebArena's images; `shopping_site_admin` has access to the REST API of the shop."""

# Fills the only form with a visible password field, because the pages have search and newsletter
# forms too. Scripts of the page may enable its button later, and Enter has no effect until then.
# The setter of the prototype bypasses those that frameworks define on the element.
_FILL_SCRIPT = """
async ([user, password]) => {
  const isVisible = (element) => element.offsetParent !== null;
  const passwordInput = [...document.querySelectorAll("input[type=password]")].find(isVisible);
  const isUserInput = (input) => isVisible(input) && ["text", "email"].includes(input.type);
  const form = passwordInput?.form;
  const userInput = form && [...form.elements].find(isUserInput);
  if (!userInput) return false;
  const button = form.querySelector("button:not([type=button]), input[type=submit]");
  for (let waits = 0; button?.disabled && waits < 100; waits++) {
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  const set = Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value").set;
  for (const [input, value] of [[userInput, user], [passwordInput, password]]) {
    input.focus();
    set.call(input, value);
    input.dispatchEvent(new Event("input", { bubbles: true }));
    input.dispatchEvent(new Event("change", { bubbles: true }));
  }
  return true;
}
"""

_ERROR_TEXT_SCRIPT = """
() => {
  const selector = "[role=alert], .message-error, .message, .alert, .flash-alert, .error";
  const messages = [...document.querySelectorAll(selector)].map((e) => e.innerText.trim());
  return (messages.find(Boolean) ?? document.title ?? "").slice(0, 200);
}
"""


def accounts_from_environment(environ: Mapping[str, str]) -> Mapping[str, Account]:
    """Return the accounts of WebArena's images, or of WEBAGENT_<SITE>_USER and ..._PASSWORD."""
    return {
        site: Account(
            environ.get(f"WEBAGENT_{site.upper()}_USER") or account.user,
            environ.get(f"WEBAGENT_{site.upper()}_PASSWORD") or account.password,
        )
        for site, account in _DEFAULT_ACCOUNTS.items()
    }


class AuthStateStore:
    """Authentication states of all sites, in a folder that only its owner can read; thread-safe.

    Args:
        pool: browsers for the login forms.
        folder: folder of the states; created if missing.
        accounts: account of each site.
        extra_origins: further origins that the pages of a site load from.

    Raises:
        ConfigError: the folder cannot be created or written.
    """

    def __init__(
        self,
        pool: BrowserPool,
        folder: Path,
        accounts: Mapping[str, Account],
        extra_origins: Mapping[str, Sequence[str]],
    ) -> None:
        self._pool, self._folder = pool, folder
        self._accounts, self._extra_origins = accounts, extra_origins
        self._lock = threading.Lock()
        self._reserved: set[Path] = set()
        create_writable_folder(folder, "suite.webarena.auth_dir", mode=0o700)

    @contextmanager
    def borrow(self, addresses: Mapping[str, str]) -> Iterator[Path | None]:
        """Return a context with the file of a state that is signed in to all of these sites.

        Args:
            addresses: addresses of the sites. Without any, the context contains None.

        Raises:
            InfraError: a login fails; the message contains the error text of the site.
            ConfigError: two sites overwrite one another's cookies.
        """
        with ExitStack() as stack:
            # Each state stays reserved until the episode ends.
            paths = [
                stack.enter_context(self._borrow_one(site, address))
                for site, address in addresses.items()
            ]
            if len(paths) < 2:
                yield next(iter(paths), None)
                return
            # The name consists of reserved names, so no other episode uses it.
            merged_path = self._folder / f"{'+'.join(path.stem for path in paths)}.json"
            states = [state for path in paths if (state := _read_state(path))]
            _write_state(merged_path, _merge_states(states, tuple(addresses)))
            stack.callback(merged_path.unlink, missing_ok=True)
            yield merged_path

    def find_session_error(
        self, addresses: Mapping[str, str], state: Mapping[str, Any]
    ) -> str | None:
        """Describe the site that no longer accepts the session of a state; None if all accept it.

        Args:
            addresses: addresses of the sites.
            state: storage state of the browser, in the format of Playwright.

        Raises:
            InfraError: a site does not respond.
        """
        for site, address in addresses.items():
            if not self._accepts(site, address, state):
                user = self._accounts[site].user
                fix = f": {_SHARING_FIX}" if site == _SINGLE_SESSION_SITE else ""
                return f"{site} at {address} ended the session of {user} during the episode{fix}"
        return None

    def try_account(self, site: str, address: str) -> str | None:
        """Sign in; return a warning if a second login ends the session of the first, else None.

        Raises:
            InfraError: the login fails.
        """
        with self._borrow_one(site, address) as path:
            if site != _SINGLE_SESSION_SITE:
                return None
            with self._borrow_one(site, address):
                # Create a second state while the first is reserved, then check the first.
                if self._is_signed_in(site, address, path):
                    return None
        return f"{site} at {address} allows one session per account: {_SHARING_FIX}"

    @contextmanager
    def _borrow_one(self, site: str, address: str) -> Iterator[Path]:
        path = self._reserve(site, address)
        # Requests run outside of the lock; the reservation protects the file.
        try:
            if not self._is_signed_in(site, address, path):
                self._sign_in(site, address, path)
            yield path
        finally:
            with self._lock:
                self._reserved.discard(path)

    def _reserve(self, site: str, address: str) -> Path:
        """Reserve and return the first unused state of an account on a replica."""
        origin = (origin_of(address) or "").replace(":", "_")
        user = quote(self._accounts[site].user, safe="")
        with self._lock:
            # A reserved state belongs to a running episode, so the next number is used.
            number = 0
            while (
                path := self._folder / f"{user}@{site}@{origin}-{number}.json"
            ) in self._reserved:
                number += 1
            self._reserved.add(path)
        return path

    def _is_signed_in(self, site: str, address: str, path: Path) -> bool:
        state = _read_state(path)
        return state is not None and self._accepts(site, address, state)

    def _accepts(self, site: str, address: str, state: Mapping[str, Any]) -> bool:
        """Return whether the site shows the protected page to a browser with this state."""
        login_page = _LOGIN_PAGES[site]
        url = f"{address}{login_page.protected_path.format(user=quote(self._accounts[site].user))}"
        # A plain request is enough: the sites keep sessions in cookies.
        response = _fetch(site, address, url, {"Cookie": _cookie_header(state, url)})
        if login_page.marker_text:
            return response.status < 300 and login_page.marker_text in response.text
        # Without a login, the site redirects to its login page.
        return response.status < 300 and response.url.rstrip("/") == url.rstrip("/")

    def _sign_in(self, site: str, address: str, path: Path) -> None:
        """Create the state.

        Raises:
            InfraError: the login fails.
        """
        account = self._accounts[site]
        origins = [origin_of(address) or "", *self._extra_origins.get(site, ())]
        form_url = f"{address}{_LOGIN_PAGES[site].login_path}"
        # After a cache flush the page takes longer than the browser's timeout.
        _fetch(site, address, form_url)
        # A browser submits the form, because scripts of the page may be involved.
        with self._pool.session(origins=origins) as session:
            page_error = _submit_login_form(session, form_url, account)
            _write_state(path, session.storage_state())
        if not self._is_signed_in(site, address, path):
            # A file without a login must not be used by a later run.
            path.unlink()
            prefix = f"WEBAGENT_{site.upper()}"
            raise InfraError(
                f"{site} at {address} did not sign {account.user} in and shows {page_error!r}: "
                f"check {prefix}_USER and {prefix}_PASSWORD, see third_party/webarena/README.md"
            )


def _fetch(
    site: str, address: str, url: str, headers: Mapping[str, str] | None = None
) -> http.HttpResponse:
    """Return a page of a site.

    Raises:
        InfraError: the site does not respond, or its status is 500 or above.
    """
    try:
        response = http.fetch(url, timeout=sites.FIRST_PAGE_TIMEOUT, headers=headers)
    except InfraError as error:
        raise InfraError(f"{site} at {address} does not respond: {error}") from error
    if response.status >= 500:
        raise InfraError(f"{site} at {address} responded with {response.status} to {url}")
    return response


def _submit_login_form(session: Session, url: str, account: Account) -> str:
    """Fill and submit the form; return the error text of the next page."""
    session.goto(url)
    if session.evaluate(_FILL_SCRIPT, [account.user, account.password]):
        session.act(Action(ActionKind.PRESS_ENTER))
        return str(session.evaluate(_ERROR_TEXT_SCRIPT))
    return f"no login form at {url}"


# --- storage states of Playwright ----------------------------------------------------------------


def _read_state(path: Path) -> dict[str, Any] | None:
    """Return the state in a file; None if the file is missing or incomplete."""
    try:
        state: dict[str, Any] = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return state


def _write_state(path: Path, state: Mapping[str, Any]) -> None:
    """Write a state to a file that only its owner can read.

    Raises:
        InfraError: the file cannot be written.
    """
    try:
        # The mode applies from the creation on; chmod afterwards would leave a gap.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(state, file)
    except OSError as error:
        raise InfraError(f"cannot write {path}: {error.strerror}") from error


def _cookie_header(state: Mapping[str, Any], url: str) -> str:
    """Return the Cookie header that a browser with this state sends to `url`."""
    host, path = urlsplit(url).hostname or "", urlsplit(url).path
    # A site may still know the session of a cookie that browsers drop because it has expired.
    min_expiry = time.time() + _MIN_COOKIE_SECONDS
    return "; ".join(
        f"{cookie['name']}={cookie['value']}"
        for cookie in state["cookies"]
        # A cookie of a domain also applies to its subdomains, but not to hosts that only end alike.
        if f".{host}".endswith(f".{cookie['domain'].lstrip('.')}")
        and path.startswith(cookie["path"])
        # Playwright's -1 is a cookie of the browser session, which does not expire.
        and not 0 <= cookie.get("expires", -1) < min_expiry
    )


def _merge_states(states: Sequence[Mapping[str, Any]], sites: Sequence[str]) -> dict[str, Any]:
    """Merge states into one.

    Raises:
        ConfigError: two states have different values for the same cookie.
    """
    cookies: dict[tuple[str, ...], Any] = {}
    for state in states:
        for cookie in state["cookies"]:
            key = (cookie["domain"], cookie["path"], cookie["name"])
            if cookies.setdefault(key, cookie)["value"] != cookie["value"]:
                raise ConfigError(
                    f"{' and '.join(sites)} overwrite one another's cookie {cookie['name']}, "
                    "because cookies ignore ports: use a different hostname for each site"
                )
    origins = [origin for state in states for origin in state.get("origins", ())]
    return {"cookies": list(cookies.values()), "origins": origins}
