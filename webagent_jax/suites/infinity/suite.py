"""Suite of WebArena-Infinity: its apps on a guarded server, scored by their own verifiers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from webagent_jax.browser import BrowserPool, Session
from webagent_jax.config import InfinityConfig
from webagent_jax.suites.browser_environment import BrowserEnvironment
from webagent_jax.suites.infinity import catalog
from webagent_jax.suites.infinity.catalog import app_folder
from webagent_jax.suites.infinity.experts import SOLUTIONS, solve
from webagent_jax.suites.infinity.server import InfinityServer
from webagent_jax.suites.infinity.verifier import verify
from webagent_jax.types import Expert, InfraError, ResetResult, Split, Task

VIEWPORT = (1280, 720)  # CSS pixels

# The apps compare the dates of their data with the clock ("tomorrow", "2 days ago"), and verifiers
# expect dates relative to the days on which the apps were made. So every page starts at the same
# moment, and the clock runs from there: the apps also derive ids from it.
_CLOCK_SCRIPT = """
{
  const start = Date.parse("2026-03-07T10:00:00Z");
  const now = () => Math.floor(start + performance.now());
  Date.now = now;
  window.Date = new Proxy(Date, {
    construct: (target, values) => new target(...(values.length ? values : [now()])),
    apply: (target) => new target(now()).toString(),
  });
}
"""


class Infinity:
    """Suite of the apps of a checkout, which share one server and one pool of browsers.

    Args:
        pool: pool of browsers; the caller closes it.
        config: checkout, difficulties and splits.
        names: names of apps ("gmail") or tasks ("gmail/task_e1") to select; empty for all.

    Raises:
        ConfigError: there is no checkout at the path, or a name matches none of its tasks.
        InfraError: the server does not start.
    """

    def __init__(
        self, pool: BrowserPool, config: InfinityConfig, names: Sequence[str] = ()
    ) -> None:
        self._config = config
        self._pool = pool
        self._tasks = catalog.read(config, names)
        all_tasks = [task for tasks in self._tasks.values() for task in tasks.values()]
        self._server = InfinityServer({task.sites[0]: app_folder(task) for task in all_tasks})

    def task_names(self, split: Split) -> Sequence[str]:
        """Return the names of the tasks of a split."""
        return tuple(self._tasks[split])

    def tasks(self, split: Split) -> Sequence[Task]:
        """Return all tasks of a split."""
        return tuple(self._tasks[split].values())

    def task(self, name: str, split: Split, index: int) -> Task:
        """Return the index-th attempt at a task; attempts start in the same world."""
        task = self._tasks[split][name]
        return replace(task, id=f"{task.id}/{index}", seed=index) if index else task

    def make_env(self, task: Task) -> InfinityEnvironment:
        """Create an environment with a new world and a browser restricted to its origin.

        Raises:
            InfraError: the browser fails.
        """
        (app,) = task.sites
        # The world exists before its session, because its slot is the origin of the session.
        world = self._server.new(app)
        try:
            session = self._pool.session(
                origins=[self._server.origin(world)],
                init_script=_CLOCK_SCRIPT,
                viewport=VIEWPORT,
                reuse=True,
            )
        except BaseException:
            self._server.drop(app, world)
            raise
        return InfinityEnvironment(
            self._server, world, session, task, self._config.verifier_timeout
        )

    def make_expert(self, task: Task, reset_result: ResetResult) -> Expert:
        """Create the scripted expert of a task.

        Raises:
            KeyError: the task has no expert.
        """
        return solve(SOLUTIONS[catalog.task_name(task)], reset_result.observation)

    def close(self) -> None:
        """Stop the server."""
        self._server.close()


class InfinityEnvironment(BrowserEnvironment):
    """Environment of one task in one world, in its own browser context."""

    def __init__(
        self,
        server: InfinityServer,
        world: str,
        session: Session,
        task: Task,
        verifier_timeout: float,
    ) -> None:
        super().__init__(session)
        self._server, self._world, self._task = server, world, task
        (self._app,) = task.sites
        self._verifier_timeout = verifier_timeout

    def reset(self) -> ResetResult:
        """Open the app.

        Raises:
            InfraError: the browser fails, or the app does not report its state.
        """
        self._session.goto(self._server.start_url(self._app, self._world))
        self.read_state()
        return ResetResult(self._task.intent, self._session.observe(), self._session.take_timings())

    def compute_reward(self, answer: str | None) -> float:
        """Return 1.0 if the verifier accepts the state of the app, else 0.0.

        `answer` has no effect: no verifier reads one.

        Raises:
            InfraError: the verifier fails.
        """
        verifier = Path(self._task.eval["verifier"])
        return float(verify(verifier, self.read_state(), self._verifier_timeout))

    def read_state(self) -> bytes:
        """Return the state that the app has reported last, as JSON.

        Raises:
            InfraError: it has not reported any.
        """
        state = self._server.state(self._app, self._world)
        if state is None:
            raise InfraError(f"{self._app} has not reported its state")
        return state

    def close(self) -> None:
        """Close the browser context and delete the world."""
        super().close()
        self._server.drop(self._app, self._world)
