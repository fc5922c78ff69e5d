"""Evaluations as tables for terminals and Markdown, from what `eval.json` holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from webagent_jax.report import paper_results
from webagent_jax.report.comparison import Comparison
from webagent_jax.tracking import statistics
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
"""The arena's own sites under WebArena's names, in the order of the paper's columns."""

_NAMED = 10  # tasks of a list that are named; the others are counted


def evaluation(record: Json) -> str:
    """All that is printed of an evaluation: success by site, and how the episodes went."""
    return "\n".join([grid(_success(record)), *_notes(record), "", *_details(record)])


def change(compared: Comparison, other: str) -> str:
    """What is printed of a comparison with an evaluation called `other`."""
    low, high = compared.ci95
    lines = [
        f"Against {other}: {100 * compared.difference:+.1f} points "
        f"({100 * low:+.1f} to {100 * high:+.1f}), p = {compared.p:.2g} (McNemar, exact), "
        f"over {compared.n} paired tasks",
        f"  solved now: {_named(compared.gained)}",
        f"  no longer:  {_named(compared.lost)}",
    ]
    if compared.only_after or compared.only_before:
        lines.append(
            f"  left out, without a reward on the other side: {compared.only_after} of ours, "
            f"{compared.only_before} of theirs"
        )
    return "\n".join(lines)


def unscored(record: Json) -> str:
    """What is to be said when episodes have no reward."""
    notes = [f"  {entry['task_id']}: {entry['note']}" for entry in record["infra"][:_NAMED]]
    more = len(record["infra"]) - len(notes)
    return "\n".join(
        [
            f"INFRA: {len(record['infra'])} of {len(record['tasks'])} episodes have no reward, "
            "because browser, site or evaluator failed them; they count nowhere above. "
            "The same command plays them again:",
            *notes,
            *([f"  and {more} more"] if more else []),
        ]
    )


# --- rows of text --------------------------------------------------------------------------------


def grid(rows: Rows) -> str:
    """Columns set under one another, the first to the left and the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def markdown(rows: Rows) -> str:
    """A table whose first row is the head."""
    head, *body = rows
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, rule, *body))


def percent(rate: float) -> str:
    return f"{100 * rate:.1f}"


def interval(ci95: Sequence[float]) -> str:
    """`36.5 to 46.1`, in percent."""
    return " to ".join(map(percent, ci95))


# --- success -------------------------------------------------------------------------------------


def _success(record: Json) -> list[list[str]]:
    if record["config"]["suite"]["name"] == "arena":
        return _by_column(record, _ARENA_COLUMNS)
    if record["config"]["suite"]["name"] != "webarena_lite":
        return _by_row(record)
    ours = _by_column(record, paper_results.COLUMNS)
    return [*ours, *_published()] if _like_published(record) else ours


def _by_row(record: Json) -> list[list[str]]:
    """A row for each site, as many as there may be."""
    sites = {site: record["by_site"][site] for site in sorted(record["by_site"])}
    rows = [["success", "%", "95 % interval", "episodes"]]
    for name, entry in (sites | {"all": record}).items():
        told = percent(entry["success_rate"]) if entry["n"] else "-"
        rows.append([name, told, interval(_ci95(entry)), str(entry["n"])])
    return rows


def _by_column(record: Json, columns: Mapping[str, str]) -> list[list[str]]:
    """A column for each site, as the paper has them; tasks across sites count in Avg alone."""
    entries = [*(record["by_site"].get(site) for site in columns), record]
    told = [
        (
            percent(entry["success_rate"]),
            *map(percent, _ci95(entry)),
            str(entry["n"]),
        )
        if entry and entry["n"]
        else ("-", "-", "-", "0")
        for entry in entries
    ]
    names = ("this policy", "  95 % from", "  to", "  episodes")
    body = [[name, *cells] for name, cells in zip(names, zip(*told, strict=True), strict=True)]
    return [["success, %", *columns.values(), "Avg"], *body]


def _like_published(record: Json) -> bool:
    config = record["config"]
    return config["suite"]["name"] == "webarena_lite" and config["eval"]["split"] == "test"


def _published() -> Iterator[list[str]]:
    for row in paper_results.WEBARENA_LITE:
        cells = ("-" if rate is None else f"{rate:.1f}" for rate in row.by_site)
        yield [f"published: {row.policy}", *cells, f"{row.average:.1f}"]


def _ci95(entry: Json) -> Sequence[float]:
    """Older files do not tell those of sites."""
    n = entry["n"]
    return entry.get("ci95") or statistics.wilson(round(entry["success_rate"] * n), n)


def _notes(record: Json) -> Iterator[str]:
    """What has to be known to read the table."""
    suite = record["config"]["suite"]["name"]
    if suite == "arena":
        yield "The arena is not WebArena: its figures compare with one another alone."
    if _like_published(record):
        yield (
            f"Published rows: {paper_results.SOURCE}, {paper_results.TASKS} tasks, of which this "
            f"evaluation has {len({result['task_id'] for result in record['tasks']})}."
        )
    across = sum(entry["n"] for site, entry in record["by_site"].items() if "," in site)
    if across and suite in ("arena", "webarena_lite"):
        yield f"Avg counts {across} episodes of tasks across sites, too."


# --- everything else -----------------------------------------------------------------------------


def _details(record: Json) -> Iterator[str]:
    rows = [["", "mean", "median", "90 %", "most"]]
    for name, key in (
        ("turns of an episode", "turns"),
        ("tokens of a reply", "response_tokens"),
        ("seconds of an episode", "episode_seconds"),
    ):
        of = record[key]
        rows.append([name, *(f"{of[part]:.1f}" for part in ("mean", "p50", "p90", "max"))])
    yield grid(rows)
    for title, points in (("turns", _limits(record)), ("pass@k", _passes(record))):
        if points:
            yield ""
            yield grid([[title, "success, %", "95 % interval"], *points])
    yield ""
    outcomes = ", ".join(f"{n} {outcome}" for outcome, n in sorted(record["by_outcome"].items()))
    yield f"{outcomes} · {duration(record['seconds'])} of playing"
    yield (
        f"replies that cannot be read {percent(record['parse_error_rate'])} % of turns, "
        f"actions refused by the page {percent(record['invalid_action_rate'])} %"
    )
    busy = record["busy"]
    yield f"busy: browsers {percent(busy['browser'])} %, engine {percent(busy['engine'])} %"
    if "usage" in record:
        yield _usage(record["usage"])


def _limits(record: Json) -> list[list[str]]:
    return [
        [f"up to {e['max_turns']}", percent(e["success_rate"]), interval(e["ci95"])]
        for e in record.get("by_max_turns", [])
    ]


def _passes(record: Json) -> list[list[str]]:
    return [
        [f"k = {k}", percent(entry["rate"]), interval(entry["ci95"])]
        for k, entry in record.get("pass_at_k", {}).items()
    ]


def _usage(usage: Json) -> str:
    cost = "price unknown" if usage["dollars"] is None else f"${usage['dollars']:.2f}"
    return (
        f"endpoint: {usage['prompt_tokens']:,} prompt tokens, "
        f"{usage['completion_tokens']:,} completion tokens, {cost}"
    )


def _named(tasks: Sequence[str]) -> str:
    more = len(tasks) - _NAMED
    named = ", ".join(tasks[:_NAMED]) + (f" and {more} more" if more > 0 else "")
    return f"{len(tasks)}" + (f" ({named})" if tasks else "")
