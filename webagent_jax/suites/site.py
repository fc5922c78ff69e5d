"""Suite of a user's own site: tasks and rewards are Python functions.

    def add_item(rng: random.Random) -> SiteTask:
        item = rng.choice(["bread", "milk", "tea"])
        return SiteTask(
            f"Add {item} to the list.",
            reward=lambda session, answer: session.evaluate("items") == [item],
        )

    def make_suite(pool: BrowserPool, config: SuiteConfig) -> SiteSuite:
        return SiteSuite(pool, config, "http://localhost:3000", {"add-item": add_item})

Every command accepts it as `--config.suite.factory=my_module:make_suite` (docs/your_site.md).
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urljoin

from webagent_jax.browser import BrowserPool, Session
from webagent_jax.browser.context import origin_of
from webagent_jax.config import ConfigError, SuiteConfig
from webagent_jax.local_site import StaticSite
from webagent_jax.seeds import task_seeds
from webagent_jax.suites import site_state
from webagent_jax.suites.browser_environment import BrowserEnvironment
from webagent_jax.suites.names import did_you_mean
from webagent_jax.suites.user_code import convert_user_errors
from webagent_jax.types import Expert, InfraError, Observation, ResetResult, Split, Task


@dataclass(frozen=True, slots=True)
class SiteTask:
    """Task of a site."""

    intent: str  # instruction for the agent
    # Returns the reward, 0 or 1 or a bool, for the final page and the answer of the agent. The
    # answer is empty after exit() without a message, and None without an exit.
    reward: Callable[[Session, str | None], float]
    start: str = ""  # URL of the start page, relative to that of the site
    # Returns whether the page ends the episode, after each action; None: only the agent ends it.
    is_done: Callable[[Session], bool] | None = None
    # Called before the start page opens, in each attempt; other attempts may run at the same time.
    reset: Callable[[], None] | None = None
    # Scripted solution from the first observation, for demonstrations.
    expert: Callable[[Observation], Expert] | None = None
    # File with cookies and local storage of a signed-in user, in Playwright's storage state format.
    storage_state: str | None = None


TaskFunction = Callable[[random.Random], SiteTask]


class SiteSuite:
    """Suite of the tasks of one site.

    Episodes have separate browser contexts. They share the server of the site, and the attempts of
    one task run concurrently: if tasks change its state, keep a state per browser, by a cookie, or
    reset the state in `SiteTask.reset` and set `rollout.max_concurrent_episodes=1`.

    Args:
        pool: pool of browsers; the caller closes it.
        config: options of the run: `tasks` selects names, `train_seeds_per_task` is the number of
            training tasks per name.
        site: address of the site (http://host:port), or a folder of static files to serve.
        tasks: function of each task name. It draws a task from a random generator; equal
            generators must give equal tasks.
        name: name of the suite, the first part of task ids.
        origins: further origins that the pages may load, as "host:port".

    Raises:
        ConfigError: `tasks` is not a mapping, `config.tasks` has an unknown name, or `site` is
            neither an address nor a folder.
        InfraError: the server of a folder does not start.
    """

    def __init__(
        self,
        pool: BrowserPool,
        config: SuiteConfig,
        site: str | Path,
        tasks: Mapping[str, TaskFunction],
        *,
        name: str = "site",
        origins: Sequence[str] = (),
    ) -> None:
        if not isinstance(tasks, Mapping):
            raise ConfigError(
                f"the tasks of a SiteSuite are a {type(tasks).__name__}: use a dict of functions "
                'by task name, such as {"add-item": add_item}'
            )
        self._names = _select_names(config.tasks, tuple(tasks))
        self._functions = tasks
        self._seeds = task_seeds(config.train_seeds_per_task)
        self._pool, self._name = pool, name
        self._server: StaticSite | None = None
        self._url = str(site)
        if Path(site).is_dir():
            self._server = StaticSite(Path(site))
            self._url = self._server.url
        origin = origin_of(self._url)
        if origin is None:
            raise ConfigError(
                f"site {self._url!r} is neither an address nor a folder: use http://host:port, or "
                "the path of a folder with static files"
            )
        self._origins = (origin, *origins)

    def task_names(self, split: Split) -> Sequence[str]:
        """Return the selected names; the splits have equal names with different seeds."""
        return self._names

    def tasks(self, split: Split) -> Sequence[Task]:
        """Return all tasks of the split: every name for each seed."""
        pairs = itertools.product(range(len(self._seeds[split])), self._names)
        return [self.task(name, split, index) for index, name in pairs]

    def task(self, name: str, split: Split, index: int) -> Task:
        """Return the index-th task of a name.

        Raises:
            IndexError: the split has fewer tasks.
            ConfigError: the task function fails.
        """
        seed = self._seeds[split][index]
        site_task = self._draw(name, seed)
        return Task(
            id=f"{self._name}/{name}/{seed}",
            suite=self._name,
            sites=(name,),
            intent=site_task.intent,
            start_url=site_task.start,
            seed=seed,
        )

    def make_env(self, task: Task) -> SiteEnvironment:
        """Create an environment with its own browser context.

        Raises:
            InfraError: the browser fails.
            ConfigError: the file `SiteTask.storage_state` is missing or damaged, or the task
                function returns another task than before.
        """
        (name,) = task.sites
        site_task = self._draw(name, task.seed)
        # Attempts of different tasks would form one group, and experts would solve other tasks.
        if site_task.intent != task.intent:
            raise ConfigError(
                f"the function of task {name!r} returned {task.intent!r}, then "
                f"{site_task.intent!r} for the same seed: draw from its argument rng only"
            )
        state = site_task.storage_state
        if state and not _is_storage_state(Path(state)):
            raise ConfigError(
                f"SiteTask.storage_state={state!r} is missing or damaged: sign in and save it "
                "with the two commands below. The window needs a display: on a cluster, create the "
                "file elsewhere and copy it\npython -m playwright install chromium\n"
                f"python -m playwright open --save-storage={state} {self._url}"
            )
        session = self._pool.session(origins=self._origins, storage_state=state)
        return SiteEnvironment(
            session, urljoin(f"{self._url.rstrip('/')}/", site_task.start), site_task
        )

    def make_expert(self, task: Task, reset_result: ResetResult) -> Expert:
        """Create the expert of the task.

        Raises:
            KeyError: the task has no expert.
        """
        (name,) = task.sites
        expert = self._draw(name, task.seed).expert
        if expert is None:
            raise KeyError(f"task {name!r} has no expert: set SiteTask.expert")
        with convert_user_errors("SiteTask.expert"):
            return expert(reset_result.observation)

    def close(self) -> None:
        """Stop the server of a folder."""
        if self._server:
            self._server.close()

    def _draw(self, name: str, seed: int) -> SiteTask:
        with convert_user_errors(f"the function of task {name!r}"):
            # A text as seed gives the same generator in every process.
            site_task = self._functions[name](random.Random(f"{self._name}/{name}/{seed}"))
        if not isinstance(site_task, SiteTask):
            raise ConfigError(
                f"the function of task {name!r} returns {site_task!r}: return a SiteTask"
            )
        intent = site_task.intent
        if not isinstance(intent, str) or not intent.strip():
            raise ConfigError(
                f"the function of task {name!r} returns a SiteTask with intent={intent!r}: "
                "set the instruction for the agent"
            )
        return site_task


class SiteEnvironment(BrowserEnvironment):
    """Environment of one task of a site, in its own browser context."""

    def __init__(self, session: Session, url: str, site_task: SiteTask) -> None:
        super().__init__(session)
        self._url, self._site_task = url, site_task

    def reset(self) -> ResetResult:
        """Reset the site and open the start page.

        Raises:
            InfraError: the browser fails, or the site fails or responds with an error page.
            ConfigError: `SiteTask.reset` fails.
        """
        if self._site_task.reset:
            with convert_user_errors("SiteTask.reset"):
                self._site_task.reset()
        site_state.open_tabs(self._session, [self._url])
        intent = self._site_task.intent
        return ResetResult(intent, self._session.observe(), self._session.take_timings())

    def _check_page(self, observation: Observation) -> tuple[Observation, bool]:
        if self._site_task.is_done is None:
            return observation, False
        with _convert_page_errors("SiteTask.is_done"):
            return observation, bool(self._site_task.is_done(self._session))

    def compute_reward(self, answer: str | None) -> float:
        """Return the reward of the task.

        Raises:
            InfraError: the browser fails, or the site fails or has stopped.
            ConfigError: `SiteTask.reward` fails, or its result is neither 0 nor 1.
        """
        with _convert_page_errors("SiteTask.reward"):
            reward = self._site_task.reward(self._session, answer)
            if reward not in (0, 1):
                raise ConfigError(f"SiteTask.reward returned {reward!r}: return 0, 1 or a bool")
            reward = float(reward)
        if not reward:
            # A site that has stopped is no failure of the agent.
            site_state.check_last_page(self._session, self._url)
        return reward


@contextmanager
def _convert_page_errors(function: str) -> Iterator[None]:
    """Convert user errors; the message of a page fault begins with the name of the function."""
    with convert_user_errors(function):
        try:
            yield
        except InfraError as error:
            raise InfraError(f"{function}: {error}") from error


def _select_names(selected: Sequence[str], names: tuple[str, ...]) -> tuple[str, ...]:
    for name in selected:
        if name not in names:
            raise ConfigError(f"no task {name!r}; {did_you_mean(name, names)}")
    # A name that occurs twice would count its tasks twice.
    return tuple(dict.fromkeys(selected)) or names


def _is_storage_state(path: Path) -> bool:
    try:
        return isinstance(json.loads(path.read_bytes()), dict)
    except (OSError, ValueError):
        return False
