"""Tables of evaluations for terminals and Markdown, from the content of `eval.json`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from webagent_jax.report import paper_results
from webagent_jax.report.comparison import EvalComparison
from webagent_jax.suites.task_file import SITES
from webagent_jax.tracking.progress import duration

Json = Mapping[str, Any]
Rows = Sequence[Sequence[str]]

_ARENA_COLUMNS = {
    "reddit": "Forum",
    "gitlab": "Code",
    "shopping_admin": "Admin",
    "map": "Map",
    "shopping": "Shop",
}
"""Arena sites by WebArena site name, in the order of the columns of the paper."""

_MAX_LISTED = 10  # maximum task ids in a list; the rest is counted


def evaluation(record: Json) -> str:
    """Return the summary of an evaluation: success by site, turns, tokens, time and outcomes."""
    return "\n".join([grid(_success(record)), *_notes(record), "", *_details(record)])


def comparison_text(comparison: EvalComparison, baseline_name: str) -> str:
    """Return the summary of a comparison with an evaluation.

    Args:
        comparison: result of `comparison.compare`.
        baseline_name: display name of the earlier evaluation.
    """
    low, high = comparison.ci95
    lines = [
        f"Against {baseline_name}: {100 * comparison.difference:+.1f} points "
        f"({100 * low:+.1f} to {100 * high:+.1f}), p = {comparison.p:.2g} (McNemar, exact), "
        f"over the first attempts at {comparison.n} paired tasks",
        f"  learned:   {_task_list(comparison.gained)}",
        f"  forgotten: {_task_list(comparison.lost)}",
    ]
    if comparison.only_candidate or comparison.only_baseline:
        lines.append(
            "  omitted, with a reward on one side only: "
            f"{comparison.only_candidate} of this evaluation, "
            f"{comparison.only_baseline} of {baseline_name}"
        )
    return "\n".join(lines)


def infra_text(record: Json) -> str:
    """Return the message about episodes without a reward."""
    notes = [
        f"  {entry['task_id']}: {entry['infra_error']}" for entry in record["infra"][:_MAX_LISTED]
    ]
    more = len(record["infra"]) - len(notes)
    return "\n".join(
        [
            f"INFRA: {len(record['infra'])} of {len(record['tasks'])} episodes have no reward, "
            "because the browser, the site or the evaluator failed; the results omit them. "
            "Run the same command again to retry them:",
            *notes,
            *([f"  and {more} more"] if more else []),
        ]
    )


# --- rows of text --------------------------------------------------------------------------------


def grid(rows: Rows) -> str:
    """Return aligned columns: the first left-aligned, the others right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def markdown(rows: Rows) -> str:
    """Return a Markdown table whose header is the first row."""
    head, *body = rows
    separator = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, separator, *body))


def percent(rate: float | None) -> str:
    """Format a rate in percent with one digit; None, without a scored episode, is `-`."""
    return "-" if rate is None else f"{100 * rate:.1f}"


def interval(ci95: Sequence[float]) -> str:
    """Format an interval in percent: `36.5 to 46.1`."""
    return " to ".join(map(percent, ci95))


# --- success -------------------------------------------------------------------------------------


def _success(record: Json) -> list[list[str]]:
    suite = _suite_name(record)
    if suite == "arena":
        return _by_column(record, _ARENA_COLUMNS)
    if suite != "webarena_lite":
        return _by_row(record)
    # Published rates are shown for the test split only, on which they were measured.
    rows = _by_column(record, paper_results.COLUMNS)
    return [*rows, *_published_rows()] if _is_published_split(record) else rows


def _suite_name(record: Json) -> str:
    """Return the name of a suite of the package; empty for one of `suite.factory`."""
    suite = record["config"]["suite"]
    return "" if suite.get("factory") else str(suite["name"])


def _by_row(record: Json) -> list[list[str]]:
    """Return one row per site."""
    sites = {site: record["by_site"][site] for site in sorted(record["by_site"])}
    rows = [["success", "%", "95 % interval", "episodes"]]
    for name, entry in (sites | {"all": record}).items():
        rate = percent(entry["success_rate"]) if entry["n"] else "-"
        rows.append([name, rate, interval(entry["ci95"]), str(entry["n"])])
    return rows


def _by_column(record: Json, columns: Mapping[str, str]) -> list[list[str]]:
    """Return one column per site, those of the paper first; only Avg has tasks across sites."""
    others = [site for site in sorted(record["by_site"]) if site not in columns and "," not in site]
    columns = {**columns, **{site: site for site in others}}
    entries = [*(record["by_site"].get(site) for site in columns), record]
    columns_text = [
        (
            percent(entry["success_rate"]),
            *map(percent, entry["ci95"]),
            str(entry["n"]),
        )
        if entry and entry["n"]
        else ("-", "-", "-", "0")
        for entry in entries
    ]
    names = ("this policy", "  95 % from", "  to", "  episodes")
    body = [
        [name, *cells] for name, cells in zip(names, zip(*columns_text, strict=True), strict=True)
    ]
    return [["success, %", *columns.values(), "Avg"], *body]


def _is_published_split(record: Json) -> bool:
    """Return whether the tasks can be those of the published rates."""
    config = record["config"]
    sites = {site for name in record["by_site"] for site in name.split(",")}
    return (
        _suite_name(record) == "webarena_lite"
        and config["eval"]["split"] == "test"
        # Older evaluations lack the option and used the labels of their file.
        and config["suite"]["webarena"].get("labels", "original") == "original"
        and config["suite"]["webarena"]["matching_rules"] == "lite"
        # Other task files have sites of their own, or more tasks.
        and sites <= set(SITES)
        and _num_tasks(record) <= paper_results.TASKS
    )


def _num_tasks(record: Json) -> int:
    return len({result["task_id"] for result in record["tasks"]})


def _published_rows() -> Iterator[list[str]]:
    for row in paper_results.WEBARENA_LITE:
        cells = ("-" if rate is None else f"{rate:.1f}" for rate in row.by_site)
        yield [f"published: {row.policy}", *cells, f"{row.average:.1f}"]


def _notes(record: Json) -> Iterator[str]:
    """Yield explanations of the table."""
    suite = _suite_name(record)
    if suite == "arena":
        yield "The arena is not WebArena: compare its success rates with each other only."
    if _is_published_split(record):
        yield (
            f"Published rows: {paper_results.SOURCE}, {paper_results.TASKS} tasks, of which this "
            f"evaluation has {_num_tasks(record)}."
        )
    # The site of a task across sites is a list: "gitlab,reddit".
    num_cross_site = sum(entry["n"] for site, entry in record["by_site"].items() if "," in site)
    if num_cross_site and suite in ("arena", "webarena_lite"):
        yield f"Avg includes {num_cross_site} episodes of tasks across sites."


# --- details -------------------------------------------------------------------------------------


def _details(record: Json) -> Iterator[str]:
    rows = [["", "mean", "median", "p90", "max"]]
    for name, key in (
        ("turns per episode", "turns"),
        ("tokens per response", "response_tokens"),
        ("seconds per episode", "episode_seconds"),
    ):
        stats = record[key]
        rows.append([name, *(f"{stats[part]:.1f}" for part in ("mean", "p50", "p90", "max"))])
    yield grid(rows)
    for title, points in (("turns", _turn_limit_rows(record)), ("pass@k", _pass_at_k_rows(record))):
        if points:
            yield ""
            yield grid([[title, "success, %", "95 % interval"], *points])
    yield ""
    outcomes = ", ".join(f"{n} {outcome}" for outcome, n in sorted(record["by_outcome"].items()))
    yield f"{outcomes} · {duration(record['seconds'])} of wall-clock time"
    yield (
        f"invalid responses {percent(record['parse_error_rate'])} % of turns, "
        f"actions with an error {percent(record['invalid_action_rate'])} % of turns"
    )
    shares = record["utilization"]
    browser, engine = percent(shares["browser"]), percent(shares["engine"])
    yield f"utilization: browsers {browser} %, engine {engine} %"
    if "usage" in record:
        yield _usage(record["usage"])


def _turn_limit_rows(record: Json) -> list[list[str]]:
    return [
        [f"up to {e['max_turns']}", percent(e["success_rate"]), interval(e["ci95"])]
        for e in record.get("by_max_turns", [])
    ]


def _pass_at_k_rows(record: Json) -> list[list[str]]:
    num_tasks = len({result["task_id"] for result in record["tasks"]})
    rows = []
    for k, entry in record.get("pass_at_k", {}).items():
        # Tasks with fewer than k scored attempts are omitted. Older evaluations lack the number.
        n = entry.get("n", num_tasks)
        name = f"k = {k}" if n == num_tasks else f"k = {k}, {n} of {num_tasks} tasks"
        rows.append([name, percent(entry["rate"]), interval(entry["ci95"])])
    return rows


def _usage(usage: Json) -> str:
    cost = "unknown price" if usage["dollars"] is None else f"${usage['dollars']:.2f}"
    return (
        f"endpoint: {usage['prompt_tokens']:,} prompt tokens, "
        f"{usage['completion_tokens']:,} completion tokens, {cost}"
    )


def _task_list(tasks: Sequence[str]) -> str:
    more = len(tasks) - _MAX_LISTED
    ids = ", ".join(tasks[:_MAX_LISTED]) + (f" and {more} more" if more > 0 else "")
    return f"{len(tasks)}" + (f" ({ids})" if tasks else "")
