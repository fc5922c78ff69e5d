"""Base class of the environments on sessions of the browser pool."""

from __future__ import annotations

from webagent_jax.browser import Session
from webagent_jax.types import Action, Observation, StepResult


class BrowserEnvironment:
    """Environment on one browser session, without `reset` and `compute_reward`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def session(self) -> Session:
        """Browser session of the episode."""
        return self._session

    def step(self, action: Action) -> StepResult:
        """Execute an action; the observation contains the reason if it is refused.

        Raises:
            InfraError: the browser or a site fails.
        """
        error = self._act(action)
        observation, terminated = self._check_page(self._session.observe(error))
        return StepResult(observation, terminated, self._session.take_timings())

    def screenshot(self) -> bytes:
        """Return a JPEG screenshot of the page."""
        return self._session.screenshot()

    def close(self) -> None:
        """Close the browser context."""
        self._session.close()

    def _act(self, action: Action) -> str | None:
        """Execute an action; return the reason if it is refused."""
        return self._session.act(action)

    def _check_page(self, observation: Observation) -> tuple[Observation, bool]:
        """Return the observation for the agent, and whether the site has ended the episode."""
        return observation, False
