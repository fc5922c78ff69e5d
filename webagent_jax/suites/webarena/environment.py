"""Environment of one WebArena task on the replicas of its lease."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from webagent_jax.browser import Session
from webagent_jax.suites import evaluators, site_state, task_file
from webagent_jax.suites.browser_environment import BrowserEnvironment
from webagent_jax.suites.judge import Judge
from webagent_jax.suites.matching import MatchingRules
from webagent_jax.suites.site_state import BrowserSiteState
from webagent_jax.suites.webarena import http, verified
from webagent_jax.suites.webarena.auth import Account
from webagent_jax.suites.webarena.replicas import ReplicaLease
from webagent_jax.types import (
    Action,
    ActionKind,
    Element,
    InfraError,
    Observation,
    ResetResult,
    StepResult,
    Task,
)

_REST_TIMEOUT = 30.0  # seconds
_SIGN_OUT = re.compile(r"\b(sign|log)[ _-]?(out|off)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Scoring:
    """Settings of the evaluators."""

    rules: MatchingRules
    judge: Judge | None
    shop_admin: Account  # account with access to the shop's REST API
    verified_python: str  # interpreter with webarena-verified; empty if no task needs it

    def shop_json(self, shop: str, path: str) -> Any:
        """Return the response of a shop's REST API to a GET, with a new token.

        Args:
            shop: address of the shop.
            path: path such as "/rest/V1/orders".

        Raises:
            InfraError: the request fails.
        """
        # A new token per call: none is stored, and none can expire.
        token = _call_rest_api(
            f"{shop}/rest/default/V1/integration/admin/token",
            data={"username": self.shop_admin.user, "password": self.shop_admin.password},
        )
        return _call_rest_api(f"{shop}{path}", headers={"Authorization": f"Bearer {token}"})


class WebArenaEnvironment(BrowserEnvironment):
    """Environment that owns its session, authentication states and lease; `close` releases them.

    Args:
        task: task with the addresses of `lease`.
        session: browser session.
        lease: replicas of the sites.
        scoring: settings of the evaluators.
        find_site_error: describes a site that does not respond, or does not accept the session of a
            browser state; returns None if all do.
        keep_network_log: whether the network log is a file of the episode; the session must log.
        resources: resources to release, the session first.
    """

    def __init__(
        self,
        task: Task,
        session: Session,
        lease: ReplicaLease,
        *,
        scoring: Scoring,
        find_site_error: Callable[[Mapping[str, Any]], str | None],
        keep_network_log: bool = False,
        resources: ExitStack,
    ) -> None:
        super().__init__(session)
        self._task, self._lease = task, lease
        self._scoring, self._find_site_error = scoring, find_site_error
        self._resources = resources
        self._elements: Mapping[str, Element] = {}  # elements of the last observation
        self._agent_signed_out = False
        self._keep_network_log = keep_network_log
        self._files: dict[str, bytes] = {}

    def reset(self) -> ResetResult:
        """Open a tab for each start page and activate the first.

        Raises:
            InfraError: the browser or a page fails.
        """
        with self._mark_faults():
            site_state.open_tabs(self._session, task_file.start_urls(self._task))
            return ResetResult(
                self._task.intent,
                self._remember(self._session.observe()),
                self._session.take_timings(),
            )

    def step(self, action: Action) -> StepResult:
        """Execute an action; the observation contains the reason if it is refused.

        Raises:
            InfraError: the browser fails.
        """
        with self._mark_faults():
            return super().step(action)

    def compute_reward(self, answer: str | None) -> float:
        """Return the score of the task in the current state of the sites.

        Raises:
            InfraError: an evaluator failed, or a site failed or ended the session during an
                unsuccessful episode. If the agent itself has signed out, the episode counts as its
                failure.
        """
        with self._mark_faults():
            # Before the evaluators, which open pages themselves.
            entries = self._session.network_log() if self._keep_network_log else []
            if self._keep_network_log:
                self._files[verified.NETWORK_FILE] = verified.har_file(entries)
                self._files[verified.SITES_FILE] = verified.sites_file(
                    self._lease.addresses, self._session.url
                )
            if verified.is_verified(self._task):
                score = self._verified_score(answer, entries)
            else:
                score = self._webarena_score(answer)
            # A failure may be that of a site, not that of the agent.
            if score < 1 and not self._agent_signed_out:
                site_error = self._find_site_error(self._session.storage_state())
                if site_error:
                    raise InfraError(site_error)
            return score

    def episode_files(self) -> Mapping[str, bytes]:
        """Return network log and addresses, and for WebArena-Verified its response and result."""
        return self._files

    def close(self) -> None:
        """Release the resources; idempotent."""
        self._resources.close()

    def _webarena_score(self, answer: str | None) -> float:
        state = BrowserSiteState(self._session, self._lease.addresses, self._scoring.shop_json)
        return evaluators.score(self._task, answer, state, self._scoring.judge, self._scoring.rules)

    def _verified_score(self, answer: str | None, entries: Sequence[Mapping[str, Any]]) -> float:
        spec = self._task.eval
        # Every episode opens a page, so an empty log is a fault of the browser.
        if not entries:
            raise InfraError("the network log of the episode is empty")
        response = verified.agent_response(answer, spec["task_type"], spec["item_type"])
        request = verified.ScoreRequest(
            spec["webarena_id"], self._lease.addresses, response, entries
        )
        [verdict] = verified.score(self._scoring.verified_python, [request])
        assert verdict.score is not None, "there is a network log"
        self._files[verified.RESPONSE_FILE] = json.dumps(response).encode()
        self._files[verified.RESULT_FILE] = json.dumps(verdict.result).encode()
        return verdict.score

    def _act(self, action: Action) -> str | None:
        # Checked before the action, while the elements of its observation are still known.
        self._agent_signed_out |= self._is_sign_out(action)
        return super()._act(action)

    def _check_page(self, observation: Observation) -> tuple[Observation, bool]:
        return self._remember(observation), False

    def _remember(self, observation: Observation) -> Observation:
        """Store the elements, so that `_is_sign_out` can look up that of the next action."""
        self._elements = observation.elements
        return observation

    def _is_sign_out(self, action: Action) -> bool:
        """Return whether the action clicks "Sign out" or similar, or opens such an address."""
        element = self._elements.get(action.element_id or "")
        address = action.value if action.kind is ActionKind.GOTO else None
        return bool(_SIGN_OUT.search((element.name if element else address) or ""))

    @contextmanager
    def _mark_faults(self) -> Iterator[None]:
        """Mark the lease as faulty on a fault, so that its replicas are probed before reuse."""
        try:
            yield
        except InfraError:
            self._lease.has_fault = True
            raise


def _call_rest_api(url: str, **request: Any) -> Any:
    # Messages leave out the query, which may be long.
    endpoint = url.partition("?")[0]
    try:
        response = http.fetch(url, timeout=_REST_TIMEOUT, **request)
    except InfraError as error:
        raise InfraError(f"the shop's REST API does not respond at {endpoint}: {error}") from error
    if response.status >= 300:
        raise InfraError(f"the shop's REST API responded with {response.status} at {endpoint}")
    return response.json()
