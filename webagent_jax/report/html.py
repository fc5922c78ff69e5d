"""report.html: one file that shows a run, and opens anywhere without a network.

Summary and curves are in the file. Episodes are in the folder `report/` beside it: a page that is
sent alone says so in their place.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import jinja2
from markupsafe import Markup

from webagent_jax.report import episode_pages, plots, run_loader, training_curves
from webagent_jax.report.run_loader import Evaluation, Point, Run
from webagent_jax.tracking import atomic_files
from webagent_jax.tracking.progress import duration

TEMPLATES = Path(__file__).parent / "templates"

_STYLES = ("base.css", "summary.css", "browser.css", "episode.css")
_SCRIPTS = ("dom.js", "data.js", "state.js", "list.js", "step.js", "episode.js", "main.js")


@dataclass(frozen=True)
class SiteRow:
    """One site in all stages that were evaluated on it."""

    site: str
    rates: Mapping[str, run_loader.SiteRate]  # by stage
    gain: float  # last stage minus the first


@dataclass(frozen=True)
class Scaling:
    """Success of the stages against what they were allowed."""

    title: str
    drawing: Markup  # an <svg>
    series: Mapping[str, int]  # colour and dashes by stage


def write_report(path: Path, also: Sequence[Path] = ()) -> Path:
    """Builds `report.html` and `report/` in a work directory from what is there so far.

    Args:
      path: the work directory.
      also: other work directories, whose curves are drawn beside those of `path`.

    Returns the path of report.html, which is replaced in one step. Raises FileNotFoundError when
    there is no such directory, and ValueError that names the file when one cannot be read.
    """
    run = run_loader.load(path)
    others = [run_loader.load(other) for other in also]
    episodes = episode_pages.write(path, run.logs)
    atomic_files.write_text(path / "report.html", render(run, others, episodes))
    return path / "report.html"


def render(run: Run, others: Sequence[Run] = (), episodes: int = 0) -> str:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "percent": lambda rate: f"{100 * rate:.1f}",
        "points": lambda difference: f"{100 * difference:+.1f}".replace("-", "−"),
        "duration": duration,
        "human": lambda key: key.replace("_", " ").replace("/", " "),
        "combine": lambda defaults, known: {**defaults, **known},
        "thousands": lambda number: f"{number:,}",
    }
    groups = training_curves.by_config([run, *others])
    found_phases = training_curves.find_phases(groups[0])
    begins = [phase.first for phase in found_phases[1:]]
    script = _scripts()
    return environment.get_template("report.html.j2").render(
        run=run,
        episodes=episodes,
        groups=groups if others else [],
        script=Markup(script),
        script_hash=_csp_hash(script),
        style=Markup("".join(_template(name) for name in _STYLES)),
        evaluations=list(run.evaluations.values()),
        comparison=run.comparison,
        panels=training_curves.curves(groups, "grpo", training_curves.PANELS, begins),
        panel_titles=[metric.title for metric in training_curves.PANELS],
        phases=found_phases,
        more_curves=[
            *training_curves.curves(groups, "grpo", training_curves.MORE, begins),
            *training_curves.curves(groups, "bc", (*training_curves.MORE, *training_curves.PANELS)),
        ],
        scaling=_scaling(run),
        sites=_site_rows(run),
    )


def _scaling(run: Run) -> list[Scaling]:
    """Those of which some stage tells more than one point."""
    stages = run.evaluations
    drawn = (
        _scaled("Success against the limit of turns", {s: stages[s].by_max_turns for s in stages}),
        _scaled("Success within k attempts", {s: stages[s].pass_at_k for s in stages}),
    )
    return [scaling for scaling in drawn if scaling.series]


def _scaled(title: str, by_stage: Mapping[str, Sequence[Point]]) -> Scaling:
    told = {stage: points for stage, points in by_stage.items() if len(points) > 1}
    rates = "; ".join(
        f"{run_loader.STAGES[stage]} {', '.join(f'{p.rate:.0%} at {p.at}' for p in points)}"
        for stage, points in told.items()
    )
    curves = [_points(stage, points) for stage, points in told.items()]
    drawing = plots.scaling(curves, label=f"{title}: {rates}")
    return Scaling(title, Markup(drawing), {stage: _series(stage) for stage in told})


def _points(stage: str, found: Sequence[Point]) -> plots.Points:
    return plots.Points(
        at=[point.at for point in found],
        rates=[point.rate for point in found],
        lows=[point.ci95[0] for point in found],
        highs=[point.ci95[1] for point in found],
        series=_series(stage),
    )


def _series(stage: str) -> int:
    """The last policy of a run has the accent."""
    return {"grpo": 0, "eval": 0, "bc": 1, "base": 2}[stage]


def _site_rows(run: Run) -> list[SiteRow]:
    """The largest gain first."""
    stages: list[Evaluation] = list(run.evaluations.values())
    rows = []
    for site in sorted({site for stage in stages for site in stage.by_site}):
        rates = {stage.stage: stage.by_site[site] for stage in stages if site in stage.by_site}
        known = [rate.rate for rate in rates.values()]
        rows.append(SiteRow(site, rates, known[-1] - known[0]))
    return sorted(rows, key=lambda row: -row.gain)


def _scripts() -> str:
    """One script in a scope of its own: the page has no other."""
    return '"use strict";\n{\n' + "\n".join(_template(name) for name in _SCRIPTS) + "}\n"


def _template(name: str) -> str:
    return (TEMPLATES / name).read_text("utf-8")


def _csp_hash(script: str) -> str:
    """What the page's Content-Security-Policy lets run: this script, and what it loads."""
    digest = hashlib.sha256(script.encode()).digest()
    return "sha256-" + base64.b64encode(digest).decode("ascii")
