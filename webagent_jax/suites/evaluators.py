"""Whether a task of WebArena was done: its answer, the address it ended at, the pages it left.

`score` is the product of the evaluators that a task names, as in the harnesses of WebArena
(Zhou et al. 2023, arXiv 2307.13854) and WebArena-Lite (Liu et al. 2024, arXiv 2408.06327), which
compare in two ways (`matching.Rules`). Their quirks are kept where scores depend on them. Left are:

- An answer that was never given meets no `string_match`. The released trainer of WebAgent-R1 takes
  it for "N/A", so that running out of turns is rewarded on every unachievable task.
- ` |OR| ` parts the references of an answer under both rules; WebArena parts those of a page and
  of an address alone, and so takes no answer at all for its task 386.
- `localhost` is 127.0.0.1 under both rules, and either may be told to compare EXACT.
- The first evaluator that fails decides: the product is 0, whatever the others say.
- A page that is none of a site (about:blank, the browser's own error page) holds no text. Any
  other fault of browser, site or judge raises InfraError; the harnesses count it as a failure.

Texts are compared by `matching`; the live sites are asked through `World` alone.
"""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import quote, urlencode, urlparse

from webagent_jax.config import ConfigError
from webagent_jax.suites.judge import Judge
from webagent_jax.suites.matching import LITE, Rules, clean, exact_match, must_include, url_matches
from webagent_jax.suites.task_file import UNACHIEVABLE, call, needs_judge
from webagent_jax.types import InfraError, Task


class World(Protocol):
    """The live sites as the episode left them. Every call is bounded in time or raises InfraError.

    There is one page: `goto` moves it, and what is asked afterwards is asked of the new one.
    """

    def url(self) -> str:
        """Where the page is, as its address bar has it."""
        ...

    def goto(self, url: str) -> None:
        """Opens a page of a site, and waits until it is quiet."""
        ...

    def evaluate(self, script: str) -> Any:
        """What a JavaScript function without arguments returns on the page, as JSON has it."""
        ...

    def address(self, site: str) -> str:
        """Of a site by its name in `task_file.SITES`, without a slash at the end."""
        ...

    def shop_json(self, path: str) -> Any:
        """The answer of the shop's REST API to a GET by its administrator. `path`: "/rest/..."."""
        ...


def score(
    task: Task, answer: str | None, world: World, judge: Judge | None = None, rules: Rules = LITE
) -> float:
    """1.0 if every evaluator of the task is content, else 0.0.

    Args:
        task: from `task_file.load`.
        answer: the message the agent ended with; None when it gave none.
        world: its sites, still as the agent left them; may be on another page afterwards.
        judge: asked where no rule decides.
        rules: of the harness to agree with.

    Raises:
        InfraError: browser, site or judge failed.
        ConfigError: the task has nothing to be scored by, or needs a judge and there is none.
    """
    if not task.eval:
        raise ConfigError(f"{task.id} has no eval in its file: it can be played, not scored")
    trial = _Trial(task, answer, world, judge, rules)
    return float(all(_EVALUATORS[name](trial) for name in task.eval["eval_types"]))


def without_judge(
    tasks: Iterable[Task], *, strict: bool = False
) -> tuple[tuple[Task, ...], tuple[Task, ...]]:
    """The tasks that rules alone decide, and those left out.

    Raises:
        ConfigError: `strict`, and some would be left out.
    """
    kept: list[Task] = []
    left_out: list[Task] = []
    for task in tasks:
        (left_out if needs_judge(task) else kept).append(task)
    if strict and left_out:
        raise ConfigError(
            f"{len(left_out)} of {len(kept) + len(left_out)} tasks need a judge, "
            f"{left_out[0].id} first: configure one, or leave them out"
        )
    return tuple(kept), tuple(left_out)


# --- the evaluators ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Trial:
    """What an evaluator decides on."""

    task: Task
    answer: str | None
    world: World
    judge: Judge | None
    rules: Rules


def _string_match(trial: _Trial) -> bool:
    if trial.answer is None:  # no answer is none, not "N/A": a time-out must never pay
        return False
    answer = clean(trial.answer, trial.rules)
    references = trial.task.eval["reference_answers"]
    return all(_holds(trial, answer, *wanted, page=False) for wanted in references.items())


def _url_match(trial: _Trial) -> bool:
    spec = trial.task.eval
    return url_matches(spec["reference_url"], trial.world.url(), trial.rules, spec["url_note"])


def _program_html(trial: _Trial) -> bool:
    return all(_target_holds(trial, target) for target in trial.task.eval["program_html"])


def _target_holds(trial: _Trial, target: Mapping[str, Any]) -> bool:
    text = text_of(target, trial.world)
    text = html.unescape(text) if trial.rules.unescape else text
    required = target["required_contents"]
    return all(_holds(trial, text, *wanted, page=True) for wanted in required.items())


_EVALUATORS: Mapping[str, Callable[[_Trial], bool]] = {
    "string_match": _string_match,
    "url_match": _url_match,
    "program_html": _program_html,
}


def _holds(trial: _Trial, text: str, comparison: str, wanted: Any, *, page: bool) -> bool:
    """Whether an answer, or the text of a page, is what is wanted by one kind of comparison."""
    match comparison:
        case "exact_match":
            return exact_match(wanted, text, trial.rules)
        case "must_include":
            return must_include(wanted, text, trial.rules, page=page)
    return _fuzzy_match(trial, wanted, text)


def _fuzzy_match(trial: _Trial, wanted: str | Sequence[str], text: str) -> bool:
    task, judge = trial.task, trial.judge
    if wanted == UNACHIEVABLE and exact_match(UNACHIEVABLE, text, trial.rules):
        return True
    if judge is None:
        raise ConfigError(f"{task.id} needs a judge: configure one, or leave such tasks out")
    if wanted == UNACHIEVABLE:
        return judge.unachievable(task.intent, task.eval["string_note"], text)
    references = [", ".join(wanted)] if trial.rules.joined else wanted
    return all(judge.same_meaning(task.intent, reference, text) for reference in references)


# --- pages ---------------------------------------------------------------------------------------


def text_of(target: Mapping[str, Any], world: World) -> str:
    """What stands at the place that a target of `program_html` names; empty if there is none.

    A value that is no text is spelled as Python does, because the harnesses do: True, None, 2.
    """
    url = _resolved(target["url"], world)
    if url != "last":
        if not url.startswith(("http://", "https://")):
            return ""
        world.goto(url)
    locator = target["locator"]
    if call(locator):
        return _resolved(locator, world)
    if target["prep_actions"]:
        _attempt(world, target["prep_actions"])
    found = _attempt(world, [locator or "document.documentElement.outerHTML"])
    return str(found[0]) if found else ""


def _attempt(world: World, expressions: Sequence[str]) -> list[Any]:
    """The values of expressions on the page; none at all when one of them throws."""
    listed = ", ".join(expressions)
    script = f"() => {{ try {{ return [{listed}]; }} catch {{ return []; }} }}"
    values: list[Any] = world.evaluate(script)
    return values


# --- what `func:` may call -----------------------------------------------------------------------


def _resolved(text: str, world: World) -> str:
    """The text itself, or what it calls."""
    called = call(text)
    if called is None:
        return text
    arguments = [world.url() if a == "__last_url__" else a for a in called.arguments]
    return CALLS[called.name](world, *arguments)


def latest_order_url(world: World) -> str:
    """The newest order of the whole shop, whoever made it, taken by its number as an id."""
    newest = {
        "searchCriteria[sortOrders][0][field]": "created_at",
        "searchCriteria[sortOrders][0][direction]": "DESC",
        "searchCriteria[pageSize]": "1",
    }
    match world.shop_json(f"/rest/V1/orders?{urlencode(newest)}"):
        case {"items": [{"increment_id": number}, *_]}:
            return f"{world.address('shopping')}/sales/order/view/order_id/{int(number)}/"
    raise InfraError("the shop names no order")


def latest_review_author(world: World, sku: str) -> str:
    match _reviews(world, sku):
        case []:
            return ""
        case [*_, {"nickname": author}]:
            return str(author)
    raise InfraError(f"the shop names no author of the last review of {sku}")


def latest_review_rating(world: World, sku: str) -> str:
    """In per cent."""
    match _reviews(world, sku):
        case []:
            return ""
        case [*_, {"ratings": [{"rating_name": "Rating", "percent": percent}, *_]}]:
            return str(percent)
    raise InfraError(f"the shop gives no rating in the last review of {sku}")


def _reviews(world: World, sku: str) -> Any:
    return world.shop_json(f"/rest/V1/products/{quote(sku, safe='')}/reviews")


def post_url(world: World, url: str) -> str:
    """The post that an address of the forum lies below; any other address as it is."""
    parts = urlparse(url)
    match parts.path.split("/"):
        case [_, "f", forum, post, *_]:
            return f"{parts.scheme}://{parts.netloc}/f/{forum}/{post}/"
    return url


def member_role(world: World, account: str) -> str:
    """Role of an account on the page of a project's members; empty when it is none of them."""
    accounts = _all("td[data-label='Account'] span.gl-avatar-labeled-sublabel")
    row = f"{accounts}.findIndex((name) => name.outerText === {json.dumps('@' + account)})"
    found = _attempt(world, [f"{_all('td.col-max-role span')}[{row}].outerText"])
    return str(found[0]) if found else ""


def _all(selector: str) -> str:
    return f"[...document.querySelectorAll({json.dumps(selector)})]"


CALLS: Mapping[str, Callable[..., str]] = {
    "shopping_get_latest_order_url": latest_order_url,
    "shopping_get_sku_latest_review_author": latest_review_author,
    "shopping_get_sku_latest_review_rating": latest_review_rating,
    "reddit_get_post_url": post_url,
    "gitlab_get_project_memeber_role": member_role,
}
