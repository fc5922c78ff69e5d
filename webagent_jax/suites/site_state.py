"""Sites in the browser of an episode: opened for the agent, then read by the evaluators."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from webagent_jax.browser import Session
from webagent_jax.browser.dom_walk import NO_PAGE
from webagent_jax.types import InfraError

# Status of the document after redirects; 0 for one without a status, such as about:blank.
_STATUS = "() => performance.getEntriesByType('navigation')[0]?.responseStatus ?? 0"
# Whether the document or a data request of its scripts has no answer, or an error of the server.
_HAS_FAULT = """() => performance.getEntries().some(
  (entry) =>
    ["navigation", "fetch", "xmlhttprequest"].includes(entry.initiatorType) &&
    (!entry.responseStatus || entry.responseStatus >= 500)
)"""
_NETWORK_ERROR = re.compile(r"net::\w+")  # error names of Chromium

ShopJson = Callable[[str, str], Any]
"""(address of the shop, path) -> response of its REST API to the administrator, as JSON."""


def open_tabs(session: Session, urls: Sequence[str]) -> None:
    """Open a tab for each address and activate the first.

    Raises:
        InfraError: an address is not on the task's sites, or its status is 400 or above.
    """
    first, *rest = urls
    _load_page(session.goto, session, first, min_error_status=400)
    for url in rest:
        _load_page(session.open_tab, session, url, min_error_status=400)
    if rest:
        # The last opened tab is active.
        session.switch_tab(0)


def check_last_page(session: Session, start_url: str) -> None:
    """Check that the site still runs if the last page or one of its data requests failed.

    Opens the start page in this case. A failed request may also be the result of an action, such as
    a link to another site.

    Args:
        session: session whose active tab shows the last page of the episode.
        start_url: address of the start page.

    Raises:
        InfraError: the start page does not open either.
    """
    # A page may replace `performance`, so any other value than False counts as a fault.
    if not session.url.startswith(NO_PAGE) and session.evaluate(_HAS_FAULT) is False:
        return
    _load_page(session.goto, session, start_url, min_error_status=500)


class BrowserSiteState:
    """`evaluators.SiteState` on the browser session of the agent, after the episode.

    Args:
        session: browser session of the episode.
        addresses: addresses of the task's sites, by the names of `task_file.SITES`.
        shop_json: client of the shop's REST API; None if the shop has none.
    """

    def __init__(
        self, session: Session, addresses: Mapping[str, str], shop_json: ShopJson | None = None
    ) -> None:
        self._session, self._addresses, self._shop_json = session, addresses, shop_json
        # Read once, because the page may navigate by itself during the evaluation.
        self._url = session.url

    def url(self) -> str:
        """Return the address of the page: the agent's last, or the last one opened by `goto`."""
        return self._url

    def goto(self, url: str) -> None:
        """Open a page; 404 and other client errors are pages that evaluators can read.

        Raises:
            InfraError: the address is not on the task's sites, or its status is 500 or above.
        """
        _load_page(self._session.goto, self._session, url, min_error_status=500)
        self._url = self._session.url

    def evaluate(self, script: str) -> Any:
        """Return the result of a JavaScript function on the page."""
        return self._session.evaluate(script)

    def address(self, site: str) -> str:
        """Return the address of a site.

        Raises:
            InfraError: the task does not name the site.
        """
        if site not in self._addresses:
            raise InfraError(f"an evaluator needs {site}, which is not a site of the task")
        return self._addresses[site]

    def shop_json(self, path: str) -> Any:
        """Return the response of the shop's REST API to a GET of `path`.

        Raises:
            InfraError: the shop has no REST API, or the request fails.
        """
        if self._shop_json is None:
            raise InfraError(f"an evaluator needs {path} of a shop that has no REST API")
        return self._shop_json(self.address("shopping"), path)


def _load_page(
    load: Callable[[str], None], session: Session, url: str, *, min_error_status: int
) -> None:
    """Load a page.

    Raises:
        InfraError: the page does not load, its address is not on the task's sites, or its status is
            at least `min_error_status`.
    """
    try:
        load(url)
    except ValueError as error:
        raise InfraError(f"the task needs a page that is not on its sites: {error}") from error
    except InfraError as error:
        # Messages of Playwright have several lines.
        message = str(error).partition("\n")[0]
        network_error = _NETWORK_ERROR.search(message)
        reason = network_error[0] if network_error else message
        raise InfraError(f"{url} did not load: {reason}") from error
    status = session.evaluate(_STATUS)
    # A page may replace performance.getEntriesByType.
    if not isinstance(status, int):
        raise InfraError(f"{url} has no status: the page responded with {str(status)[:80]}")
    if status >= min_error_status:
        raise InfraError(f"{url} responded with {status}")
