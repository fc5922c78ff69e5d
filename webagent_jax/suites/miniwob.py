"""MiniWoB++ suite: 130 small web pages that generate problems from seeds and score them.

One of them, hover-shape, never ends its episode: it has no reward, and must be selected by name.
The pages come from the package `miniwob` (MIT) and are served from the installed wheel. Its Python
code, which needs another browser library, is not imported. Liu et al. 2018, arXiv 1802.08802.
"""

from __future__ import annotations

import importlib.util
import secrets
import typing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from webagent_jax.browser import BrowserPool, Session
from webagent_jax.config import ConfigError
from webagent_jax.local_site import StaticSite
from webagent_jax.seeds import task_seeds
from webagent_jax.suites.browser_environment import BrowserEnvironment
from webagent_jax.suites.miniwob_experts import EXPERTS
from webagent_jax.suites.names import did_you_mean
from webagent_jax.types import (
    Action,
    ActionKind,
    Expert,
    Observation,
    ResetResult,
    Split,
    Task,
)

VIEWPORT = (500, 400)  # CSS pixels; a page is 160 x 210, its pop-ups can be larger

GRADED_TASKS = frozenset(
    {
        "bisect-angle",
        "chase-circle",
        "circle-center",
        "draw-circle",
        "draw-line",
        "find-midpoint",
        "hot-cold",
        "moving-items",
        "right-angle",
    }
)
"""Tasks that grade the precision of the pointer, so that almost no answer gets the full reward."""

_UNREWARDED_TASKS = ("hover-shape",)  # its call that sets the reward is commented out

_FULL_REWARD = 1.0 - 1e-6  # some pages add up their reward from thirds

# The globals of the page's script `core` contain the score. By default its timer ends an episode
# after some seconds, and a finished episode shows a cover that starts the next one; the script
# disables both. A link, form or reload would replace the document and its problem, so the script
# blocks them. The nonce marks the document that contains the seeded problem. The query stays in the
# layout, because some pages position elements by its height. The script loads all images and
# disables animations: otherwise the outcome of an action would be visible in one episode and not in
# the next.
_START_SCRIPT = """
async ([seed, nonce]) => {
  if (document.readyState !== "complete") {
    await new Promise((resolve) => addEventListener("load", resolve, { once: true }));
  }
  const decodeAll = (images) => Promise.allSettled(images.map((image) => image.decode()));
  const urls = [...document.styleSheets].flatMap((sheet) =>
    [...sheet.cssRules].flatMap((rule) =>
      [...rule.cssText.matchAll(/content: url\\("(.*?)"\\)/g)].map(
        ([, path]) => new URL(path, sheet.href ?? document.baseURI).href,
      ),
    ),
  );
  core.pictures = urls.map((src) => Object.assign(new Image(), { src }));
  await decodeAll(core.pictures);
  if (window.jQuery) jQuery.fx.off = true;

  const style = document.createElement("style");
  style.textContent =
    "#query, #query * { visibility: hidden !important }" +
    "#reward-display, #click-canvas, #sync-task-cover { display: none !important }";
  document.head.appendChild(style);
  Math.seedrandom(seed);
  core.EPISODE_MAX_TIME = 2 ** 31 - 1;
  core.startEpisodeReal();
  core.startEpisode = core.startEpisodeReal = () => {};
  core.nonce = nonce;
  navigation.addEventListener("navigate", (event) => {
    if (event.destination.sameDocument || event.navigationType === "traverse") return;
    event.preventDefault();
    core.refused_url = event.destination.url;
  });
  await decodeAll([...document.images]);
  const utterance = core.getUtterance();
  return typeof utterance === "string" ? utterance : utterance.utterance;
}
"""

_VERDICT_SCRIPT = """
(nonce) => {
  if (window.core?.nonce !== nonce) return { is_done: true, reward: 0, refused_url: null };
  const { refused_url = null } = core;
  delete core.refused_url;
  return { is_done: WOB_DONE_GLOBAL, reward: WOB_RAW_REWARD_GLOBAL, refused_url };
}
"""


class MiniWob:
    """Suite of MiniWoB++ tasks, which share one site and one pool of browsers.

    Args:
        pool: pool of browsers; the caller closes it.
        names: task names such as `login-user`; empty for all that have a reward.
        train_seeds: seeds per task name in the training split, at most
            `seeds.FIRST_TEST_SEED`.
        latency: seconds by which the site delays every response.

    Raises:
        ConfigError: a name is unknown, `train_seeds` is not valid, or the package `miniwob` is not
            installed.
        InfraError: the site does not start.
    """

    def __init__(
        self,
        pool: BrowserPool,
        names: Sequence[str] = (),
        train_seeds: int = 10_000,
        *,
        latency: float = 0.0,
    ) -> None:
        folder = _html_folder()
        self.names = _resolve_names(names, available=all_task_names(folder))
        self._seeds = task_seeds(train_seeds)
        self._pool = pool
        self._site = StaticSite(folder, latency)

    def task_names(self, split: Split) -> Sequence[str]:
        """Return the task names; the splits have the same names with different seeds."""
        return self.names

    def tasks(self, split: Split) -> Sequence[Task]:
        """Return all tasks of the split, created on access: every name for each seed."""
        return _Tasks(self.names, self._seeds[split])

    def task(self, name: str, split: Split, index: int) -> Task:
        """Return the index-th task of one name.

        Raises:
            IndexError: the split has fewer tasks.
        """
        _resolve_names([name], available=self.names)
        return _task(name, self._seeds[split][index])

    def make_env(self, task: Task) -> MiniWobEnvironment:
        """Create an environment with its own browser context.

        Raises:
            InfraError: the browser fails.
        """
        _resolve_names(task.sites, available=self.names)
        # An episode has one embedded site, so its context can be cleared and reused.
        session = self._pool.session(origins=[self._site.address], viewport=VIEWPORT, reuse=True)
        return MiniWobEnvironment(session, f"{self._site.url}/{task.start_url}", task)

    def make_expert(self, task: Task, reset_result: ResetResult) -> Expert:
        """Create the scripted expert of the task.

        Raises:
            KeyError: the task has no expert.
        """
        (name,) = task.sites
        return EXPERTS[name](reset_result.intent, reset_result.observation)

    def close(self) -> None:
        """Stop the site."""
        self._site.close()


class MiniWobEnvironment(BrowserEnvironment):
    """Environment of one seeded problem, in its own browser context.

    Leaving the page would end the episode with reward 0.0, because its problem is lost. Therefore
    Goto, links, forms and reloads are refused.
    """

    def __init__(self, session: Session, url: str, task: Task) -> None:
        super().__init__(session)
        self._url = url
        self._seed = task.seed
        (self._name,) = task.sites
        # Marks the document of this episode; a document that is loaded later lacks it.
        self._nonce = secrets.token_hex(8)

    def reset(self) -> ResetResult:
        """Load the page and generate the problem of the seed.

        Raises:
            InfraError: the browser fails.
        """
        self._session.goto(self._url)
        # The page generates the problem from the seed, so its intent is known only now.
        intent = str(self._session.evaluate(_START_SCRIPT, [self._seed, self._nonce]))
        return ResetResult(intent, self._session.observe(), self._session.take_timings())

    def compute_reward(self, answer: str | None) -> float:
        """Return 1.0 if the page has ended the episode with its full reward, else 0.0.

        The reward is binary, as in the paper, and requires full success. Some pages give a partial
        reward for a part of the answer, which would teach a policy to submit immediately:
        click-checkboxes and its variants (per box), odd-or-even (per number), phone-book (the right
        property of the wrong person), find-greatest (0.1 for any card) and button-delay (per
        second). On GRADED_TASKS any positive reward is a success. The page's discount for time does
        not apply, and `answer` has no effect: no page requires one. If the agent has left the page
        of the seeded problem, the reward is 0.0.

        Raises:
            InfraError: the page does not respond.
        """
        verdict = self._read_verdict()
        min_reward = 0.0 if self._name in GRADED_TASKS else _FULL_REWARD
        return float(verdict.is_done and verdict.reward > 0.0 and verdict.reward >= min_reward)

    def _act(self, action: Action) -> str | None:
        # Refused here, before the page unloads and its problem is lost.
        if action.kind is ActionKind.GOTO:
            return _refusal(action.value or "")
        return super()._act(action)

    def _check_page(self, observation: Observation) -> tuple[Observation, bool]:
        verdict = self._read_verdict()
        if verdict.refused_url:
            errors = (_refusal(verdict.refused_url), observation.error)
            observation = replace(observation, error="; ".join(filter(None, errors)))
        return observation, verdict.is_done

    def _read_verdict(self) -> _Verdict:
        return _Verdict(**self._session.evaluate(_VERDICT_SCRIPT, self._nonce))


@dataclass(frozen=True, slots=True)
class _Verdict:
    """State of the seeded problem; a problem whose page was left is done, with reward 0."""

    is_done: bool
    reward: float  # reward from -1 to 1, without the discount for time
    refused_url: str | None  # address that the last action tried to open; None if it did not


@dataclass(frozen=True, slots=True)
class _Tasks(Sequence[Task]):
    """Sequence of the tasks of every name and seed, created on access to save memory."""

    names: tuple[str, ...]
    seeds: range

    def __len__(self) -> int:
        return len(self.names) * len(self.seeds)

    @typing.overload
    def __getitem__(self, index: int) -> Task: ...
    @typing.overload
    def __getitem__(self, index: slice) -> Sequence[Task]: ...
    def __getitem__(self, index: int | slice) -> Task | Sequence[Task]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        # `range` checks bounds and accepts negative indices. Consecutive tasks differ in name.
        seed, name = divmod(range(len(self))[index], len(self.names))
        return _task(self.names[name], self.seeds[seed])


def first_tasks(names: Sequence[str], split: Split) -> Iterator[Task]:
    """Return the first task of each name; empty `names` means all that have a reward.

    Raises:
        ConfigError: a name is unknown, or the package `miniwob` is not installed.
    """
    seed = task_seeds(1)[split][0]
    return (_task(name, seed) for name in _resolve_names(names, available=all_task_names()))


def all_task_names(folder: Path | None = None) -> tuple[str, ...]:
    """Return the names of all MiniWoB++ tasks, sorted.

    Args:
        folder: folder `html` of the package `miniwob`; None for the installed one.

    Raises:
        ConfigError: the package `miniwob` is not installed.
    """
    pages = (folder or _html_folder()) / "miniwob"
    return tuple(sorted(path.stem for path in pages.glob("*.html")))


def _refusal(url: str) -> str:
    return f"{url[:200]} is not opened: this task stays on its page"


def _task(name: str, seed: int) -> Task:
    return Task(
        id=f"miniwob/{name}/{seed}",
        suite="miniwob",
        sites=(name,),
        intent="",
        start_url=f"miniwob/{name}.html",
        seed=seed,
    )


def _resolve_names(names: Sequence[str], available: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if name not in available:
            raise ConfigError(f"no MiniWoB++ task {name!r}; {did_you_mean(name, available)}")
    # A name that occurs twice would count its tasks twice.
    unique_names = tuple(dict.fromkeys(names))
    return unique_names or tuple(name for name in available if name not in _UNREWARDED_TASKS)


def _html_folder() -> Path:
    spec = importlib.util.find_spec("miniwob")
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError("the MiniWoB++ pages are not installed: run pip install miniwob==1.1.0")
    return Path(spec.submodule_search_locations[0]) / "html"
