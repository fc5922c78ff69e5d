"""Sites in the browser of an episode: opened for the agent, and read by evaluators afterwards."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from webagent_jax.browser import Session
from webagent_jax.types import InfraError

_STATUS = "() => performance.getEntriesByType('navigation')[0]?.responseStatus ?? 0"

ShopJson = Callable[[str, str], Any]
"""(address of the shop, path) -> what its REST API answers to its administrator."""


def open_tabs(session: Session, urls: Sequence[str]) -> None:
    """A tab for each address, the first in front. Raises InfraError for a bad page."""
    first, *others = urls
    _open(session.goto, session, first, worst=400)
    for url in others:
        _open(session.open_tab, session, url, worst=400)
    if others:
        session.switch_tab(0)


class LiveWorld:
    """evaluators.World, on the session that the agent left.

    Args:
        addresses: of the sites of the task, by the names of `task_file.SITES`.
        shop_json: None where the shop has no REST API.
    """

    def __init__(
        self, session: Session, addresses: Mapping[str, str], shop_json: ShopJson | None = None
    ) -> None:
        self._session, self._addresses, self._shop_json = session, addresses, shop_json
        self._url = session.url()  # as the agent left it, whatever the page does meanwhile

    def url(self) -> str:
        return self._url

    def goto(self, url: str) -> None:
        """A page that is not there (404) is one that can be read; a site that fails is none."""
        _open(self._session.goto, self._session, url, worst=500)
        self._url = self._session.url()

    def evaluate(self, script: str) -> Any:
        return self._session.evaluate(script)

    def address(self, site: str) -> str:
        """Raises InfraError for a site that the task does not name."""
        if site not in self._addresses:
            raise InfraError(f"an evaluator asks for {site}, which is no site of the task")
        return self._addresses[site]

    def shop_json(self, path: str) -> Any:
        """Raises InfraError."""
        if self._shop_json is None:
            raise InfraError(f"an evaluator asks for {path} of a shop that has no REST API")
        return self._shop_json(self.address("shopping"), path)


def _open(load: Callable[[str], None], session: Session, url: str, *, worst: int) -> None:
    """Loads a page. Raises InfraError for one off the task's sites or of status `worst` and up."""
    try:
        load(url)
    except ValueError as error:
        raise InfraError(f"the task asks for what its sites do not have: {error}") from error
    status = session.evaluate(_STATUS)
    if status >= worst:
        raise InfraError(f"{url} answered {status}")
