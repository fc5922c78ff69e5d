"""Signed-in browser states: made through each site's own log-in form, checked, used again.

A state is lent to one episode at a time, so that an episode that signs out harms no other; the next
to get it finds out, and it is made anew. So is one that has expired since it was used last.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from webagent_jax.browser import BrowserPool, Session
from webagent_jax.browser.context import origin_of
from webagent_jax.config import ConfigError
from webagent_jax.suites.webarena import http, sites
from webagent_jax.types import Action, ActionKind, InfraError

_ONE_SESSION = "shopping_admin"  # where a log-in ends the account's other sessions by default
_SHARING = (
    "episodes at the same time need admin/security/admin_account_sharing=1, which "
    "third_party/webarena/site.sh sets"
)


@dataclass(frozen=True)
class Account:
    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class _Door:
    """Where a site is signed in to, and a page that only who is signed in gets to see."""

    form: str
    inside: str
    says: str = ""  # on the page inside; empty: whoever is not signed in is sent elsewhere


_DOORS: Mapping[str, _Door] = {
    "shopping": _Door("/customer/account/login/", "/wishlist/"),
    "shopping_admin": _Door("", "/dashboard", says="Dashboard"),
    "reddit": _Door("/login", "/user/{user}/account", says="Delete"),
    "gitlab": _Door("/users/sign_in", "/-/profile"),
}

_PUBLISHED: Mapping[str, Account] = {
    "shopping": Account("emma.lopez@gmail.com", "Password.123"),
    "shopping_admin": Account("admin", "admin1234"),
    "shopping_site_admin": Account("admin", "admin1234"),
    "reddit": Account("MarvelsGrantMan136", "test1234"),
    "gitlab": Account("byteblaze", "hello1234"),
}
"""The accounts that come with WebArena's images. `shopping_site_admin` may read the REST API."""

# The one form with a password that is seen: search and newsletter forms stand on the same pages.
# Its button may wait for the scripts of the page, and Enter does nothing until then. The setter is
# the element's own, because frameworks put theirs before it.
_FILL = """
async ([user, password]) => {
  const seen = (element) => element.offsetParent !== null;
  const secret = [...document.querySelectorAll("input[type=password]")].find(seen);
  const named = (input) => seen(input) && ["text", "email"].includes(input.type);
  const name = secret?.form && [...secret.form.elements].find(named);
  if (!name) return false;
  const button = secret.form.querySelector("button:not([type=button]), input[type=submit]");
  for (let waits = 0; button?.disabled && waits < 100; waits++) {
    await new Promise((later) => setTimeout(later, 50));
  }
  const set = Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value").set;
  for (const [input, value] of [[name, user], [secret, password]]) {
    input.focus();
    set.call(input, value);
    input.dispatchEvent(new Event("input", { bubbles: true }));
    input.dispatchEvent(new Event("change", { bubbles: true }));
  }
  return true;
}
"""

_COMPLAINT = """
() => {
  const places = "[role=alert], .message-error, .message, .alert, .flash-alert, .error";
  const told = [...document.querySelectorAll(places)].map((e) => e.innerText.trim());
  return (told.find(Boolean) ?? document.title ?? "").slice(0, 200);
}
"""


def accounts_from_environment(environ: Mapping[str, str]) -> Mapping[str, Account]:
    """WebArena's published accounts, or what WEBAGENT_GITLAB_USER and ..._PASSWORD say instead."""
    return {
        site: Account(
            environ.get(f"WEBAGENT_{site.upper()}_USER") or account.user,
            environ.get(f"WEBAGENT_{site.upper()}_PASSWORD") or account.password,
        )
        for site, account in _PUBLISHED.items()
    }


class SignIns:
    """The states of all sites, in a folder that only its owner may read. For any thread.

    Raises:
        ConfigError: the folder cannot be made.
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
        self._lent: set[Path] = set()
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise ConfigError(f"suite.webarena.state_folder={str(folder)!r}: {error}") from error

    @contextmanager
    def lent(self, addresses: Mapping[str, str]) -> Iterator[Path | None]:
        """A state that is signed in to all of these sites; None for none.

        Raises:
            InfraError: a site is not signed in to; says what the site said.
            ConfigError: two sites overwrite one another's cookies.
        """
        with ExitStack() as borrowed:
            paths = [
                borrowed.enter_context(self._lent_one(site, address))
                for site, address in addresses.items()
            ]
            if len(paths) < 2:
                yield next(iter(paths), None)
                return
            together = self._folder / f"{'+'.join(path.stem for path in paths)}.json"
            states = [state for path in paths if (state := _read(path))]
            _write(together, _merged(states, tuple(addresses)))
            borrowed.callback(together.unlink, missing_ok=True)
            yield together

    def ended(self, addresses: Mapping[str, str], state: Mapping[str, Any]) -> str | None:
        """Describe the site that no longer accepts the session of a state; None when all do.

        Raises:
            InfraError: a site does not answer.
        """
        for site, address in addresses.items():
            if not self._accepts(site, address, state):
                user = self._accounts[site].user
                cure = f": {_SHARING}" if site == _ONE_SESSION else ""
                return f"{site} at {address} ended the session of {user} during the episode{cure}"
        return None

    def try_account(self, site: str, address: str) -> str | None:
        """Sign in, and return a warning where a second log-in ends the session of the first.

        Raises:
            InfraError: as `lent`.
        """
        with self._lent_one(site, address) as first:
            if site != _ONE_SESSION:
                return None
            with self._lent_one(site, address):
                if self._is_signed_in(site, address, first):
                    return None
        return f"{site} at {address} allows one session per account: {_SHARING}"

    @contextmanager
    def _lent_one(self, site: str, address: str) -> Iterator[Path]:
        path = self._reserve(site, address)
        try:
            if not self._is_signed_in(site, address, path):
                self._sign_in(site, address, path)
            yield path
        finally:
            with self._lock:
                self._lent.discard(path)

    def _reserve(self, site: str, address: str) -> Path:
        """The first state of an account on a replica that nobody has."""
        place = (origin_of(address) or "").replace(":", "_")
        user = quote(self._accounts[site].user, safe="")
        with self._lock:
            number = 0
            while (path := self._folder / f"{user}@{site}@{place}-{number}.json") in self._lent:
                number += 1
            self._lent.add(path)
        return path

    def _is_signed_in(self, site: str, address: str, path: Path) -> bool:
        state = _read(path)
        return state is not None and self._accepts(site, address, state)

    def _accepts(self, site: str, address: str, state: Mapping[str, Any]) -> bool:
        """Return True when the page inside is shown to a browser with this state."""
        door = _DOORS[site]
        url = f"{address}{door.inside.format(user=quote(self._accounts[site].user))}"
        reply = _fetch(site, address, url, {"Cookie": _cookies(state, url)})
        if door.says:
            return reply.status < 300 and door.says in reply.text
        return reply.status < 300 and reply.url.rstrip("/") == url.rstrip("/")

    def _sign_in(self, site: str, address: str, path: Path) -> None:
        """Makes the state. Raises InfraError when the site does not let the account in."""
        account = self._accounts[site]
        origins = [origin_of(address) or "", *self._extra_origins.get(site, ())]
        form = f"{address}{_DOORS[site].form}"
        _fetch(site, address, form)  # after a flush it takes longer than the browser waits
        with self._pool.session(origins=origins) as session:
            said = _through_the_form(session, form, account)
            _write(path, session.storage_state())
        if not self._is_signed_in(site, address, path):
            path.unlink()
            name = f"WEBAGENT_{site.upper()}"
            raise InfraError(
                f"{site} at {address} did not sign {account.user} in, and says {said!r}: are "
                f"{name}_USER and {name}_PASSWORD right? see third_party/webarena/README.md"
            )


def _fetch(
    site: str, address: str, url: str, headers: Mapping[str, str] | None = None
) -> http.Reply:
    """Return a page of a site. Raises InfraError where there is no answer, or 500 and up."""
    try:
        reply = http.fetch(url, timeout=sites.FIRST_PAGE_TIMEOUT, headers=headers)
    except InfraError as error:
        raise InfraError(f"{site} at {address} does not answer: {error}") from error
    if reply.status >= 500:
        raise InfraError(f"{site} at {address} answered {reply.status} to {url}")
    return reply


def _through_the_form(session: Session, url: str, account: Account) -> str:
    """Fills the form and submits it; what the page says then."""
    session.goto(url)
    if session.evaluate(_FILL, [account.user, account.password]):
        session.act(Action(ActionKind.PRESS_ENTER))
        return str(session.evaluate(_COMPLAINT))
    return f"nothing of a log-in form at {url}"


# --- states, in the form of Playwright -----------------------------------------------------------


def _read(path: Path) -> dict[str, Any] | None:
    """None where there is none, or half of one."""
    try:
        state: dict[str, Any] = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return state


def _write(path: Path, state: Mapping[str, Any]) -> None:
    """For the owner's eyes alone."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(state, file)


def _cookies(state: Mapping[str, Any], url: str) -> str:
    """What a browser with this state would send to `url`."""
    host, path = urlsplit(url).hostname or "", urlsplit(url).path
    return "; ".join(
        f"{cookie['name']}={cookie['value']}"
        for cookie in state["cookies"]
        if f".{host}".endswith(f".{cookie['domain'].lstrip('.')}")
        and path.startswith(cookie["path"])
    )


def _merged(states: Sequence[Mapping[str, Any]], sites: Sequence[str]) -> dict[str, Any]:
    """One state of several. Raises ConfigError where a cookie of one is another's too."""
    cookies: dict[tuple[str, ...], Any] = {}
    for state in states:
        for cookie in state["cookies"]:
            key = (cookie["domain"], cookie["path"], cookie["name"])
            if cookies.setdefault(key, cookie)["value"] != cookie["value"]:
                raise ConfigError(
                    f"{' and '.join(sites)} overwrite one another's cookie {cookie['name']}, for "
                    "cookies do not know ports: give the sites host names of their own"
                )
    origins = [origin for state in states for origin in state.get("origins", ())]
    return {"cookies": list(cookies.values()), "origins": origins}
