"""WebArena's evaluators: scores of a task from its answer, final address and site contents.

`score` is the product of the evaluators that a task names, as in the harnesses of WebArena
(Zhou et al. 2023, arXiv 2307.13854) and WebArena-Lite (Liu et al. 2024, arXiv 2408.06327), which
compare differently (`matching.MatchingRules`). Quirks that scores depend on are reproduced, with
these exceptions:

- A missing answer fails every `string_match`. The released trainer of WebAgent-R1 treats it as
  "N/A", so that running out of turns is rewarded on every unachievable task.
- ` |OR| ` separates the references of an answer under both rules. WebArena separates only those of
  a page and of an address, and so accepts no answer for its task 386.
- `localhost` equals 127.0.0.1 under both rules, and both support the `url_note` EXACT.
- Evaluation stops at the first evaluator that fails, because the product is then 0.
- A page outside of the sites (about:blank, the browser's error page) has no text. Any other fault
  of browser, site or judge raises InfraError; the harnesses count it as a failure.

`matching` compares texts; evaluators access the live sites only through `SiteState`.
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
from webagent_jax.suites.matching import (
    LITE,
    MatchingRules,
    exact_match,
    must_exclude,
    must_include,
    normalize,
    url_matches,
)
from webagent_jax.suites.task_file import UNACHIEVABLE, needs_judge, parse_call
from webagent_jax.types import InfraError, Task


class NoJudgeError(ConfigError):
    """A task needs a judge, and there is none."""


class SiteState(Protocol):
    """Live sites after an episode, accessed through one page, which `goto` changes.

    Every call returns in bounded time or raises InfraError.
    """

    def url(self) -> str:
        """Return the address of the page, as in the address bar."""
        ...

    def goto(self, url: str) -> None:
        """Open a page of a site and wait until it has settled."""
        ...

    def evaluate(self, script: str) -> Any:
        """Return the JSON result of a JavaScript function without arguments on the page."""
        ...

    def address(self, site: str) -> str:
        """Return the address of a site in `task_file.SITES`, without a trailing slash."""
        ...

    def shop_json(self, path: str) -> Any:
        """Return the shop's REST response to a GET of `path` ("/rest/...") as administrator."""
        ...


def score(
    task: Task,
    answer: str | None,
    site_state: SiteState,
    judge: Judge | None = None,
    rules: MatchingRules = LITE,
) -> float:
    """Return 1.0 if every evaluator of the task passes, else 0.0.

    Args:
        task: task from `task_file.load`.
        answer: final message of the agent; None if it sent none.
        site_state: state of the sites directly after the episode; the call may change its page.
        judge: judge of fuzzy references; None if there is none.
        rules: matching rules of the harness.

    Raises:
        InfraError: browser, site or judge failed.
        NoJudgeError: the task needs a judge and there is none.
        ConfigError: the task has no evaluator, or key, model or address of the judge is wrong.
    """
    if not task.eval:
        raise ConfigError(f"{task.id} has no eval in its file: add one to score the task")
    context = _EvalContext(task, answer, site_state, judge, rules)
    return float(all(_EVALUATORS[name](context) for name in task.eval["eval_types"]))


def split_by_judge(
    tasks: Iterable[Task], *, require_judge_free: bool = False
) -> tuple[tuple[Task, ...], tuple[Task, ...]]:
    """Return the tasks that need no judge and the tasks that need one.

    Raises:
        ConfigError: `require_judge_free`, and some tasks need a judge.
    """
    judge_free: list[Task] = []
    judge_tasks: list[Task] = []
    for task in tasks:
        (judge_tasks if needs_judge(task) else judge_free).append(task)
    if require_judge_free and judge_tasks:
        raise ConfigError(
            f"{len(judge_tasks)} of {len(judge_free) + len(judge_tasks)} tasks need a judge, "
            f"{judge_tasks[0].id} first: set suite.webarena.judge.url, or exclude these tasks"
        )
    return tuple(judge_free), tuple(judge_tasks)


# --- the evaluators ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _EvalContext:
    """Input of an evaluator."""

    task: Task
    answer: str | None
    site_state: SiteState
    judge: Judge | None
    rules: MatchingRules


def _string_match(context: _EvalContext) -> bool:
    # A missing answer is not "N/A": running out of turns must not be rewarded.
    if context.answer is None:
        return False
    # The comparisons normalize again, as in the harnesses (`matching.normalize`).
    answer = normalize(context.answer, context.rules)
    references = context.task.eval["reference_answers"]
    return all(_matches(context, answer, *item, page=False) for item in references.items())


def _url_match(context: _EvalContext) -> bool:
    spec = context.task.eval
    return url_matches(
        spec["reference_url"], context.site_state.url(), context.rules, spec["url_note"]
    )


def _program_html(context: _EvalContext) -> bool:
    return all(_target_matches(context, target) for target in context.task.eval["program_html"])


def _target_matches(context: _EvalContext, target: Mapping[str, Any]) -> bool:
    text = extract_target_text(target, context.site_state)
    text = html.unescape(text) if context.rules.unescapes_html else text
    required = target["required_contents"]
    return all(_matches(context, text, *item, page=True) for item in required.items())


_EVALUATORS: Mapping[str, Callable[[_EvalContext], bool]] = {
    "string_match": _string_match,
    "url_match": _url_match,
    "program_html": _program_html,
}


def _matches(
    context: _EvalContext, text: str, comparison: str, reference: Any, *, page: bool
) -> bool:
    """Return whether an answer, or the text of a page, passes one kind of comparison."""
    match comparison:
        case "exact_match":
            return exact_match(reference, text, context.rules)
        case "must_include":
            return must_include(reference, text, context.rules, page=page)
        case "must_exclude":
            return must_exclude(reference, text, context.rules)
    return _fuzzy_match(context, reference, text)


def _fuzzy_match(context: _EvalContext, contents: str | Sequence[str], text: str) -> bool:
    task, judge = context.task, context.judge
    # 1. The exact text N/A needs no judge.
    if contents == UNACHIEVABLE and exact_match(UNACHIEVABLE, text, context.rules):
        return True
    if judge is None:
        raise NoJudgeError(f"{task.id} needs a judge: set suite.webarena.judge.url, or exclude it")
    if contents == UNACHIEVABLE:
        # 2. An answer without N/A may give the reason why the task cannot be done.
        return judge.unachievable(task.intent, task.eval["string_note"], text)
    # 3. Compare the meaning with each reference, or with all in one request.
    references = [", ".join(contents)] if context.rules.joins_references else contents
    return all(judge.same_meaning(task.intent, reference, text) for reference in references)


# --- pages ---------------------------------------------------------------------------------------


def extract_target_text(target: Mapping[str, Any], site_state: SiteState) -> str:
    """Return the text that a target of `program_html` selects; empty if nothing is there.

    Other values are converted with `str`, as in the harnesses: True, None, 2.
    """
    url = _resolve_call(target["url"], site_state)
    # 1. Open the page of the target; "last" is the page on which the agent stopped.
    if url != "last":
        if not url.startswith(("http://", "https://")):
            return ""
        site_state.goto(url)
    # 2. Read the text: from a function, from JavaScript expressions, or the complete page.
    locator = target["locator"]
    if parse_call(locator):
        return _resolve_call(locator, site_state)
    # An error in the preparation is ignored; the text of the locator decides.
    if target["prep_actions"]:
        _evaluate_all(site_state, target["prep_actions"])
    values = _evaluate_all(site_state, [locator or "document.documentElement.outerHTML"])
    return str(values[0]) if values else ""


def _evaluate_all(site_state: SiteState, expressions: Sequence[str]) -> list[Any]:
    """Return the values of JavaScript expressions on the page; empty if one of them throws."""
    elements = ", ".join(expressions)
    script = f"() => {{ try {{ return [{elements}]; }} catch {{ return []; }} }}"
    values: list[Any] = site_state.evaluate(script)
    return values


# --- functions of `func:` ------------------------------------------------------------------------


def _resolve_call(text: str, site_state: SiteState) -> str:
    """Return the result of a `func:` call, or other texts unchanged."""
    call = parse_call(text)
    if call is None:
        return text
    arguments = [site_state.url() if a == "__last_url__" else a for a in call.arguments]
    return CALLS[call.name](site_state, *arguments)


def latest_order_url(site_state: SiteState) -> str:
    """Return the address of the shop's newest order by any customer, with its number as the id."""
    query = {
        "searchCriteria[sortOrders][0][field]": "created_at",
        "searchCriteria[sortOrders][0][direction]": "DESC",
        "searchCriteria[pageSize]": "1",
    }
    match site_state.shop_json(f"/rest/V1/orders?{urlencode(query)}"):
        case {"items": [{"increment_id": number}, *_]}:
            return f"{site_state.address('shopping')}/sales/order/view/order_id/{int(number)}/"
    raise InfraError("the shop returned no order")


def latest_review_author(site_state: SiteState, sku: str) -> str:
    """Return the author of the last review of a product; empty without reviews."""
    match _reviews(site_state, sku):
        case []:
            return ""
        case [*_, {"nickname": author}]:
            return str(author)
    raise InfraError(f"the shop returned no author in the last review of {sku}")


def latest_review_rating(site_state: SiteState, sku: str) -> str:
    """Return the rating in the last review of a product, in percent; empty without reviews."""
    match _reviews(site_state, sku):
        case []:
            return ""
        case [*_, {"ratings": [{"rating_name": "Rating", "percent": percent}, *_]}]:
            return str(percent)
    raise InfraError(f"the shop returned no rating in the last review of {sku}")


def _reviews(site_state: SiteState, sku: str) -> Any:
    return site_state.shop_json(f"/rest/V1/products/{quote(sku, safe='')}/reviews")


def post_url(site_state: SiteState, url: str) -> str:
    """Return the address of the forum post that contains `url`; other addresses unchanged."""
    parts = urlparse(url)
    match parts.path.split("/"):
        case [_, "f", forum, post, *_]:
            return f"{parts.scheme}://{parts.netloc}/f/{forum}/{post}/"
    return url


def member_role(site_state: SiteState, account: str) -> str:
    """Return the role of an account on a project's page of members; empty for other accounts."""
    accounts = _query_all("td[data-label='Account'] span.gl-avatar-labeled-sublabel")
    # Accounts and roles are in two lists of equal order; the index of the account selects the role.
    row = f"{accounts}.findIndex((name) => name.outerText === {json.dumps('@' + account)})"
    values = _evaluate_all(site_state, [f"{_query_all('td.col-max-role span')}[{row}].outerText"])
    return str(values[0]) if values else ""


def _query_all(selector: str) -> str:
    return f"[...document.querySelectorAll({json.dumps(selector)})]"


CALLS: Mapping[str, Callable[..., str]] = {
    "shopping_get_latest_order_url": latest_order_url,
    "shopping_get_sku_latest_review_author": latest_review_author,
    "shopping_get_sku_latest_review_rating": latest_review_rating,
    "reddit_get_post_url": post_url,
    "gitlab_get_project_memeber_role": member_role,
}
