"""MiniWoB++: 130 small pages that generate their own problem from a seed and judge it themselves.

The pages are those of the package `miniwob` (MIT), served from the installed wheel; its Python
code, which drives another browser library, is never imported. Liu et al. 2018, arXiv 1802.08802.
"""

from __future__ import annotations

import difflib
import importlib.util
import secrets
import typing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from webagent_jax.browser import BrowserPool, Session
from webagent_jax.config import ConfigError
from webagent_jax.local_site import StaticSite
from webagent_jax.suites.miniwob_experts import EXPERTS
from webagent_jax.types import Action, ActionKind, Expert, Split, Start, Step, Task

FIRST_TEST_SEED = 1_000_000
"""Training seeds are 0 .. train_seeds - 1; test seeds start here, so that they never meet."""

VIEWPORT = (500, 400)  # CSS pixels; a page is 160 x 210, what it opens may stick out

GRADED_PAGES = frozenset(
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
"""Pages that grade the precision of a pointer, so that hardly any answer is worth a full point."""

_FULL_REWARD = 1.0 - 1e-6  # some pages add their point up from thirds

# The page judges by globals of its script `core`. Its clock ends an episode after some seconds,
# and a finished episode puts up a cover that starts the next one: neither may happen here. A link,
# form or reload would replace the document and the problem in it, so they are refused. The nonce
# marks the document: it has one problem, the seeded one. The query stays in the layout, because
# some pages place things by its height. Pictures have no size before they are there, and
# animations take their time: both would show one action's outcome in one episode and not in the
# next.
_START = """
async ([seed, nonce]) => {
  if (document.readyState !== "complete") {
    await new Promise((loaded) => addEventListener("load", loaded, { once: true }));
  }
  const arrived = (pictures) => Promise.allSettled(pictures.map((picture) => picture.decode()));
  const urls = [...document.styleSheets].flatMap((sheet) =>
    [...sheet.cssRules].flatMap((rule) =>
      [...rule.cssText.matchAll(/content: url\\("(.*?)"\\)/g)].map(
        ([, path]) => new URL(path, sheet.href ?? document.baseURI).href,
      ),
    ),
  );
  core.pictures = urls.map((src) => Object.assign(new Image(), { src }));
  await arrived(core.pictures);
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
    core.refused = event.destination.url;
  });
  await arrived([...document.images]);
  const told = core.getUtterance();
  return typeof told === "string" ? told : told.utterance;
}
"""

_VERDICT = """
(nonce) => {
  if (window.core?.nonce !== nonce) return { done: true, reward: 0, refused: null };
  const { refused = null } = core;
  delete core.refused;
  return { done: WOB_DONE_GLOBAL, reward: WOB_RAW_REWARD_GLOBAL, refused };
}
"""


class MiniWob:
    """The suite. All its tasks share one site and one pool of browsers.

    Args:
        pool: browsers, owned and closed by the caller.
        pages: names such as `login-user`; empty means all.
        train_seeds: tasks per page in the training split, at most FIRST_TEST_SEED.
        test_seeds: tasks per page in the test split.
        latency: seconds by which every answer of the site is late.

    Raises:
        ConfigError: a page is unknown, a number cannot work, or the pages are not installed.
        InfraError: the site does not come up.
    """

    def __init__(
        self,
        pool: BrowserPool,
        pages: Sequence[str] = (),
        train_seeds: int = 10_000,
        test_seeds: int = 1_000,
        *,
        latency: float = 0.0,
    ) -> None:
        folder = _html_folder()
        self.pages = _checked(pages, known=all_pages(folder))
        self._seeds = _seed_ranges(train_seeds, test_seeds)
        self._pool = pool
        self._site = StaticSite(folder, latency)

    def names(self, split: Split) -> Sequence[str]:
        """The pages, in both splits: their seeds differ."""
        return self.pages

    def tasks(self, split: Split) -> Sequence[Task]:
        """All tasks of the split, page after page for each seed; made when they are looked at."""
        return _Tasks(self.pages, self._seeds[split])

    def task(self, page: str, split: Split, index: int) -> Task:
        """The index-th task of one page. Raises IndexError past the end of the split."""
        _checked([page], known=self.pages)
        return _task(page, self._seeds[split][index])

    def open(self, task: Task) -> MiniWobEnvironment:
        """A browser context for the task. Raises InfraError when the browser fails."""
        _checked(task.sites, known=self.pages)
        session = self._pool.session(origins=[self._site.host], viewport=VIEWPORT, reuse=True)
        return MiniWobEnvironment(session, f"{self._site.url}/{task.start_url}", task)

    def expert(self, task: Task, start: Start) -> Expert:
        """A scripted solver of the task. Raises KeyError when its page has none."""
        (page,) = task.sites
        return EXPERTS[page](start.intent, start.observation)

    def close(self) -> None:
        self._site.close()


class MiniWobEnvironment:
    """One seeded problem of one page, live in a browser context of its own."""

    def __init__(self, session: Session, url: str, task: Task) -> None:
        self._session = session
        self._url = url
        self._seed = task.seed
        (self._page,) = task.sites
        self._nonce = secrets.token_hex(8)

    def start(self) -> Start:
        """Loads the page and has it make the problem of the seed. Raises InfraError."""
        self._session.goto(self._url)
        intent = str(self._session.evaluate(_START, [self._seed, self._nonce]))
        return Start(intent, self._session.observe(), self._session.spent())

    def step(self, action: Action) -> Step:
        """Carry out the action on the page of the seeded problem.

        A problem whose page is left is lost: its episode is done, and worth 0.0. So Goto, links,
        forms and reloads are refused. Raises InfraError when the browser fails; what the page
        refuses is told to the agent.
        """
        if action.kind is ActionKind.GOTO:
            error: str | None = _refusal(action.value or "")
        else:
            error = self._session.act(action)
        observation = self._session.observe(error)
        verdict = self._verdict()
        if verdict.refused:
            errors = (_refusal(verdict.refused), observation.error)
            observation = replace(observation, error="; ".join(filter(None, errors)))
        return Step(observation, verdict.done, self._session.spent())

    def reward(self, answer: str | None) -> float:
        """1.0 if the page has ended the episode with its full reward, else 0.0.

        Success is binary, as in the paper's rule-based reward, and it is full success: some pages
        hand out a part of their point for a part of the answer (click-checkboxes and its variants
        by the box, odd-or-even by the number, phone-book for the right property of the wrong
        person, find-greatest 0.1 for any card, button-delay by the second), which would teach a
        policy to submit at once. On GRADED_PAGES any positive reward is a success. The reward is
        the one before the page's discount for time. The answer plays no part: no page asks.

        Raises InfraError when the page does not answer. A page without the seeded problem, which
        the agent left, has answered: 0.0.
        """
        verdict = self._verdict()
        least = 0.0 if self._page in GRADED_PAGES else _FULL_REWARD
        return float(verdict.done and verdict.reward > 0.0 and verdict.reward >= least)

    def picture(self) -> bytes:
        """JPEG of the page."""
        return bytes(self._session.picture())

    def close(self) -> None:
        self._session.close()

    def _verdict(self) -> _Verdict:
        return _Verdict(**self._session.evaluate(_VERDICT, self._nonce))


@dataclass(frozen=True, slots=True)
class _Verdict:
    """State of the seeded problem by the page; a lost problem is done, with reward 0."""

    done: bool
    reward: float  # -1 to 1, before the discount for time
    refused: str | None  # address that the last action would have replaced the page by


@dataclass(frozen=True, slots=True)
class _Tasks(Sequence[Task]):
    """Every page at every seed, without a million objects."""

    pages: tuple[str, ...]
    seeds: range

    def __len__(self) -> int:
        return len(self.pages) * len(self.seeds)

    @typing.overload
    def __getitem__(self, index: int) -> Task: ...
    @typing.overload
    def __getitem__(self, index: slice) -> Sequence[Task]: ...
    def __getitem__(self, index: int | slice) -> Task | Sequence[Task]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        seed, page = divmod(range(len(self))[index], len(self.pages))
        return _task(self.pages[page], self.seeds[seed])


def first_tasks(pages: Sequence[str], split: Split) -> Iterator[Task]:
    """The first task of each page; empty `pages` means all. Raises ConfigError."""
    seed = _seed_ranges(1, 1)[split][0]
    return (_task(page, seed) for page in _checked(pages, known=all_pages()))


def all_pages(folder: Path | None = None) -> tuple[str, ...]:
    """Names of all pages of the installed package. Raises ConfigError without the package."""
    pages = (folder or _html_folder()) / "miniwob"
    return tuple(sorted(path.stem for path in pages.glob("*.html")))


def _refusal(url: str) -> str:
    return f"{url[:200]} is not opened: this task stays on its page"


def _task(page: str, seed: int) -> Task:
    return Task(
        id=f"miniwob/{page}/{seed}",
        suite="miniwob",
        sites=(page,),
        intent="",
        start_url=f"miniwob/{page}.html",
        seed=seed,
    )


def _seed_ranges(train: int, test: int) -> dict[Split, range]:
    if not 1 <= train <= FIRST_TEST_SEED:
        raise ConfigError(f"suite.train_seeds={train} must be between 1 and {FIRST_TEST_SEED}")
    if test < 1:
        raise ConfigError(f"test_seeds={test} must be at least 1")
    return {"train": range(train), "test": range(FIRST_TEST_SEED, FIRST_TEST_SEED + test)}


def _checked(pages: Sequence[str], known: tuple[str, ...]) -> tuple[str, ...]:
    for page in pages:
        if page not in known:
            close = difflib.get_close_matches(page, known, n=3) or known[:3]
            raise ConfigError(f"no MiniWoB++ page {page!r}; did you mean: {', '.join(close)}?")
    return tuple(pages) or known


def _html_folder() -> Path:
    spec = importlib.util.find_spec("miniwob")
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError("the pages of MiniWoB++ are not installed: pip install miniwob==1.1.0")
    return Path(spec.submodule_search_locations[0]) / "html"
