"""HTML report of a run, readable from disk without a network.

report.html contains the summary and the curves. The directory `report/` next to it contains the
episodes; if it is missing, the page shows a message instead of the episodes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from webagent_jax.report import audit, episode_pages, page, plots, run_loader, training_curves
from webagent_jax.report.episode_pages import EpisodeIndex
from webagent_jax.report.run_loader import Evaluation, LimitPoint, Run
from webagent_jax.tracking import atomic_files

_STYLES = ("base.css", "summary.css", "featured.css", "browser.css", "episode.css")
_SCRIPTS = (
    "dom.js",
    "hover.js",
    "data.js",
    "state.js",
    "list.js",
    "turn.js",
    "episode.js",
    "featured.js",
    "main.js",
)
_NO_EPISODES = EpisodeIndex()


@dataclass(frozen=True)
class SiteRow:
    """Success rates of one site in all stages evaluated on it."""

    site: str  # name of the site
    rates: Mapping[str, run_loader.SiteRate]  # success rate by stage
    gain: float  # success rate of the last stage minus the first


@dataclass(frozen=True)
class Scaling:
    """Plot of the success rates of the stages over a limit."""

    title: str  # title of the plot
    drawing: Markup  # <svg> element
    series: Mapping[str, int]  # index of color and dashes by stage


def write_report(path: Path, extra_workdirs: Sequence[Path] = ()) -> Path:
    """Build `report.html` and `report/` in a workdir from its current files.

    Args:
        path: the workdir.
        extra_workdirs: other workdirs whose curves are added to those of `path`.

    Returns:
        The path of report.html, which is replaced atomically.

    Raises:
        FileNotFoundError: a workdir does not exist.
        ValueError: a file is not valid; the message names it.
    """
    run, *extra_runs = map(run_loader.load_run, [path, *extra_workdirs])
    if extra_runs:
        names = _distinct_names([path, *extra_workdirs])
        run, *extra_runs = map(_with_name, [run, *extra_runs], names)
    # The episodes first, so that the page never refers to files that do not exist.
    episodes = episode_pages.write(path, run.logs, run.config)
    atomic_files.write_text(path / "report.html", render(run, extra_runs, episodes))
    return path / "report.html"


def _distinct_names(workdirs: Sequence[Path]) -> list[str]:
    """Return the shortest ends of the paths of the workdirs that differ: `r1/grpo`, `zero/grpo`."""
    parts = [workdir.resolve().parts for workdir in workdirs]
    num_parts = 1
    while len({part[-num_parts:] for part in parts}) < len(set(parts)):
        num_parts += 1
    return ["/".join(part[-num_parts:]) for part in parts]


def _with_name(run: Run, name: str) -> Run:
    return dataclasses.replace(run, name=name)


def render(
    run: Run,
    extra_runs: Sequence[Run] = (),
    episodes: EpisodeIndex = _NO_EPISODES,
    version: str = "",
) -> str:
    """Return the HTML of a report.

    Args:
        run: run to report.
        extra_runs: runs whose curves are added.
        episodes: summary of `report/`; without episodes there is no episode viewer.
        version: version of the data for a served page, which updates itself; empty otherwise.
    """
    groups = training_curves.group_by_config([run, *extra_runs])
    phases = training_curves.find_phases(groups[0])
    phase_starts = [phase.first for phase in phases[1:]]
    return page.render(
        "report.html.j2",
        styles=_STYLES,
        scripts=(*_SCRIPTS, *(["live.js", "send.js"] if version else [])),
        version=version,
        run=run,
        split="training" if run.config.get("eval", {}).get("split") == "train" else "held-out",
        episodes=episodes.num_episodes,
        audits=[entry for entry in episodes.audits if entry.num_scored],
        findings=audit.DESCRIPTIONS,
        groups=groups if extra_runs else [],
        evaluations=list(run.evaluations.values()),
        comparison=run.comparison,
        panels=training_curves.curves(groups, "grpo", training_curves.PAPER_METRICS, phase_starts),
        panel_titles=[metric.title for metric in training_curves.PAPER_METRICS],
        phases=phases,
        more_curves=[
            *training_curves.curves(groups, "grpo", training_curves.OTHER_METRICS, phase_starts),
            *training_curves.curves(
                groups, "bc", (*training_curves.OTHER_METRICS, *training_curves.PAPER_METRICS)
            ),
        ],
        scaling=_scaling(run),
        sites=_site_rows(run),
    )


def _scaling(run: Run) -> list[Scaling]:
    """Return the plots in which some stage has more than one point."""
    stages = run.evaluations
    # A single point shows no dependence on the limit.
    plots_by_limit = (
        _scaling_plot(
            "Success by turn limit", "turn limit", {s: stages[s].by_max_turns for s in stages}
        ),
        _scaling_plot(
            "Success within k attempts", "attempts", {s: stages[s].pass_at_k for s in stages}
        ),
    )
    return [scaling for scaling in plots_by_limit if scaling.series]


def _scaling_plot(title: str, axis: str, by_stage: Mapping[str, Sequence[LimitPoint]]) -> Scaling:
    points_by_stage = {stage: points for stage, points in by_stage.items() if len(points) > 1}
    rates = "; ".join(
        f"{run_loader.STAGES[stage]} {', '.join(f'{p.rate:.0%} at {p.limit}' for p in points)}"
        for stage, points in points_by_stage.items()
    )
    curves = [_points(stage, points) for stage, points in points_by_stage.items()]
    drawing = plots.scaling(curves, label=f"{title}: {rates}", axis=axis)
    return Scaling(title, Markup(drawing), {stage: _series(stage) for stage in points_by_stage})


def _points(stage: str, points: Sequence[LimitPoint]) -> plots.Points:
    return plots.Points(
        limits=[point.limit for point in points],
        rates=[point.rate for point in points],
        lows=[point.ci95[0] for point in points],
        highs=[point.ci95[1] for point in points],
        series=_series(stage),
    )


def _series(stage: str) -> int:
    """Return the index of color and dashes; the last policy of a run has the accent color."""
    return {"grpo": 0, "eval": 0, "bc": 1, "base": 2}[stage]


def _site_rows(run: Run) -> list[SiteRow]:
    """Return one row per site, in descending order of gain."""
    stages: list[Evaluation] = list(run.evaluations.values())
    rows = []
    for site in sorted({site for stage in stages for site in stage.by_site}):
        rates = {stage.stage: stage.by_site[site] for stage in stages if site in stage.by_site}
        values = [rate.rate for rate in rates.values()]
        # Stages are in the order of the run, so the gain is last minus first.
        rows.append(SiteRow(site, rates, values[-1] - values[0]))
    return sorted(rows, key=lambda row: -row.gain)
