"""Suite of BrowserGym environments, whose browser, tasks and rewards are BrowserGym's.

Only actions and observations are converted. BrowserGym runs one synchronous Playwright per process,
so every open environment has its own process (worker.py), with an interpreter that has BrowserGym.
Drouin et al. 2024, arXiv 2412.05467.
"""

from __future__ import annotations

import base64
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urljoin

from webagent_jax.browser import chromium
from webagent_jax.browser.context import ContextSpec, checked_origins, isolation
from webagent_jax.config import BrowserConfig, ConfigError
from webagent_jax.seeds import FIRST_TEST_SEED, task_seeds
from webagent_jax.suites.browsergym import page
from webagent_jax.suites.browsergym.process import BrowserGymProcess
from webagent_jax.types import (
    Action,
    ActionKind,
    Expert,
    InfraError,
    Observation,
    ResetResult,
    Split,
    StepResult,
    Task,
)

_FULL_REWARD = 1.0 - 1e-6
_START_TIMEOUT = 120.0  # seconds to start a browser, load the pages and set up the task
_STEP_TIMEOUT = 60.0  # seconds
_CLOSE_TIMEOUT = 20.0  # seconds


class BrowserGym:
    """Suite of BrowserGym environments, selected by their ids.

    Args:
        ids: ids such as "browsergym/miniwob.click-test". The variables that they need (MINIWOB_URL,
            WA_SHOPPING, ...) must be set in the environment of this process.
        origins: "host:port" of the sites that pages can reach; other origins are blocked.
        config: settings of the browser, of which `executable_path` and `max_observation_chars`
            apply; the observation format is always `compact`.
        python: interpreter that has BrowserGym; empty for the current one.
        options: further arguments of BrowserGym's environment, such as {"slow_mo": 0}.
        train_seeds: tasks per id in the training split; 1 suffices if seeds have no effect.

    Raises:
        ConfigError: BrowserGym does not run in `python`, or has not registered an id.
        ValueError: an origin is malformed.
        chromium.ChromiumMissingError: there is no Chromium.
    """

    def __init__(
        self,
        ids: Sequence[str],
        *,
        origins: Sequence[str],
        config: BrowserConfig | None = None,
        python: str = "",
        options: Mapping[str, Any] | None = None,
        train_seeds: int = 100,
    ) -> None:
        self.pages = tuple(dict.fromkeys(ids))  # an id twice would count its tasks twice
        self._seeds = task_seeds(train_seeds)
        self._python = python or sys.executable
        self._config = config or BrowserConfig()
        path = chromium.find_executable(self._config.executable_path)
        # Explicit options have priority over the isolated defaults.
        self._options = _env_options(path, checked_origins(origins)) | dict(options or {})
        # Only `allows` and `refusal` are used; BrowserGym opens the contexts.
        self._origins = ContextSpec(checked_origins(origins), "", None, (0, 0))
        self._lock = threading.Lock()
        self._is_closed = False
        # The first process checks installation and ids, then serves the first environment.
        self._idle = [self._start_first_worker()]

    def task_names(self, split: Split) -> Sequence[str]:
        """Return the ids; the splits have the same ids with different seeds."""
        return self.pages

    def tasks(self, split: Split) -> Sequence[Task]:
        """Return all tasks of the split: every id for each seed."""
        return [_task(name, seed) for seed in self._seeds[split] for name in self.pages]

    def task(self, name: str, split: Split, index: int) -> Task:
        """Return the index-th task of one id.

        Raises:
            IndexError: the split has fewer tasks.
        """
        return _task(name, self._seeds[split][index])

    def make_env(self, task: Task) -> BrowserGymEnvironment:
        """Create an environment in an idle process, or in a new one.

        Raises:
            InfraError: the process does not start.
        """
        with self._lock:
            # An idle process has imported BrowserGym already.
            worker = self._idle.pop() if self._idle else None
        return BrowserGymEnvironment(
            worker or BrowserGymProcess(self._python),
            task,
            origins=self._origins,
            options=self._options,
            budget=self._config.max_observation_chars,
            on_close=self._release,
        )

    def make_expert(self, task: Task, reset_result: ResetResult) -> Expert:
        """Raise KeyError, because BrowserGym's tasks have no experts."""
        raise KeyError(task.id)

    def close(self) -> None:
        """End the idle processes; a process in use ends with its environment."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.end()

    def _start_first_worker(self) -> BrowserGymProcess:
        worker = None
        try:
            worker = BrowserGymProcess(self._python)
            unknown = worker.call("unknown", _START_TIMEOUT, ids=self.pages)
        except InfraError as error:  # the worker ends if it cannot import BrowserGym
            if worker:
                worker.end()
            raise ConfigError(
                f"BrowserGym does not run in {self._python} ({error}); "
                "install it there: pip install 'webagent_jax[browsergym]'"
            ) from error
        if unknown:
            worker.end()
            raise ConfigError(
                f"BrowserGym has no {unknown[0]}; install the package of its benchmark, such as "
                "browsergym-miniwob"
            )
        return worker

    def _release(self, worker: BrowserGymProcess) -> None:
        with self._lock:
            if not self._is_closed:
                self._idle.append(worker)
                return
        worker.end()


class BrowserGymEnvironment:
    """BrowserGym environment in its own process."""

    def __init__(
        self,
        worker: BrowserGymProcess,
        task: Task,
        *,
        origins: ContextSpec,
        options: Mapping[str, Any],
        budget: int,
        on_close: Callable[[BrowserGymProcess], None],
    ) -> None:
        self._worker: BrowserGymProcess | None = worker
        self._task, self._origins, self._options = task, origins, options
        self._budget = budget
        self._on_close = on_close
        self._last_observation = Observation("", "")
        self._total_reward = 0.0

    def reset(self) -> ResetResult:
        """Reset the environment with the seed of the task.

        Raises:
            InfraError: BrowserGym fails.
        """
        (name,) = self._task.sites
        result = self._call(
            "reset", _START_TIMEOUT, id=name, seed=self._task.seed, options=self._options
        )
        return ResetResult(str(result["goal"]), self._make_observation(result["page"]))

    def step(self, action: Action) -> StepResult:
        """Execute an action; the observation contains the reason if it is refused.

        Raises:
            InfraError: BrowserGym fails.
        """
        if action.kind is ActionKind.GOTO:
            url = self._absolute_url(action.value or "")
            # The proxy would block the address too, but only with an error page.
            if not self._origins.allows(url):
                refusal = self._origins.refusal(url)
                return StepResult(replace(self._last_observation, error=refusal), terminated=False)
            action = replace(action, value=url)
        result = self._act(action)
        return StepResult(self._make_observation(result["page"]), terminated=bool(result["done"]))

    def compute_reward(self, answer: str | None) -> float:
        """Return 1.0 if BrowserGym's rewards of the episode sum to 1, else 0.0.

        An answer is sent as a message to the user, which BrowserGym scores as another step. Without
        an answer nothing is sent.

        Raises:
            InfraError: BrowserGym fails.
        """
        if answer is not None:
            # The reward of the answer is added to the sum.
            self._act(Action(ActionKind.EXIT, value=answer))
        return float(self._total_reward >= _FULL_REWARD)

    def screenshot(self) -> bytes:
        """Return a JPEG screenshot of the page at the last observation."""
        return base64.b64decode(self._call("screenshot", _STEP_TIMEOUT))

    def close(self) -> None:
        """Close the browser and make the process available for another task; never raise."""
        # Cleared first, so that a second call has no effect.
        worker, self._worker = self._worker, None
        if worker is None:
            return
        try:
            worker.call("close", _CLOSE_TIMEOUT)
        except InfraError:
            worker.end()
            return
        self._on_close(worker)

    def _absolute_url(self, address: str) -> str:
        try:
            return urljoin(self._last_observation.url, address.strip())
        except ValueError:
            return address

    def _act(self, action: Action) -> Mapping[str, Any]:
        result: dict[str, Any] = self._call(
            "step", _STEP_TIMEOUT, action=page.to_browsergym_action(action)
        )
        self._total_reward += result["reward"]
        return result

    def _call(self, method: str, timeout: float, **arguments: Any) -> Any:
        if self._worker is None:
            raise InfraError("the environment is closed")
        return self._worker.call(method, timeout, **arguments)

    def _make_observation(self, raw_page: Mapping[str, Any]) -> Observation:
        self._last_observation = page.from_browsergym_obs(raw_page, self._budget)
        return self._last_observation


def first_tasks(ids: Sequence[str], split: Split) -> Iterator[Task]:
    """Return the first task of each id, without a check that BrowserGym has registered it."""
    return (_task(name, FIRST_TEST_SEED if split == "test" else 0) for name in ids)


def _task(name: str, seed: int) -> Task:
    return Task(
        id=f"{name}/{seed}", suite="browsergym", sites=(name,), intent="", start_url="", seed=seed
    )


def _env_options(executable: str, origins: Sequence[str]) -> dict[str, Any]:
    """Return arguments of BrowserGym's environment: Chromium, and contexts limited to `origins`."""
    return {
        "pw_chromium_kwargs": {"executable_path": executable},
        "pw_context_kwargs": isolation(origins),
    }
