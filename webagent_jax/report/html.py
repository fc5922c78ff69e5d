"""report.html: one file that shows a run, and opens anywhere without a network."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import jinja2
from markupsafe import Markup

from webagent_jax.report import files, plots, trajectories, workdir
from webagent_jax.report.progress import duration

TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class Curve:
    title: str
    drawing: Markup  # an <svg>
    now: str  # the smoothed value at the end, for the caption


@dataclass(frozen=True)
class _Metric:
    key: str
    title: str
    form: str  # of one value
    rate: bool = False  # a share in [0, 1]


# The three curves the paper shows of a training run (arXiv 2505.16421, figure 3), then the rest.
_DYNAMICS = (
    _Metric("reward", "Reward", "{:.0%}", rate=True),
    _Metric("trajectory_tokens", "Tokens per trajectory", "{:,.0f}"),
    _Metric("interactions", "Interactions per trajectory", "{:.1f}"),
)
_MORE = (
    _Metric("success", "Success", "{:.0%}", rate=True),
    _Metric("response_tokens", "Response tokens per turn", "{:.1f}"),
    _Metric("truncated", "Episodes cut off by a limit", "{:.1%}", rate=True),
    _Metric("groups_with_signal", "Groups with a policy gradient", "{:.0%}", rate=True),
    _Metric("loss", "Loss", "{:.3g}"),
    _Metric("kl", "KL to the reference", "{:.3g}"),
    _Metric("entropy", "Entropy", "{:.3g}"),
    _Metric("clip_fraction", "Clipped share of tokens", "{:.1%}", rate=True),
    _Metric("grad_norm", "Gradient norm", "{:.3g}"),
    _Metric("accuracy", "Token accuracy", "{:.1%}", rate=True),
    _Metric("forest/shared_fraction", "Tokens saved by sharing prefixes", "{:.0%}", rate=True),
)


@dataclass(frozen=True)
class SiteRow:
    """One site in all stages that were evaluated on it."""

    site: str
    rates: Mapping[str, workdir.SiteRate]  # by stage
    gain: float  # last stage minus the first


def write_report(path: Path) -> Path:
    """Builds `report.html` in a work directory from what is there so far.

    Returns its path. Raises FileNotFoundError when there is no such directory, and ValueError
    that names the file when one cannot be read.
    """
    run = workdir.load(path)
    page = render(run)
    files.write_text(path / "report.html", page)
    return path / "report.html"


def render(run: workdir.Run) -> str:
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
    }
    script = (TEMPLATES / "report.js").read_text("utf-8")
    return environment.get_template("report.html.j2").render(
        run=run,
        script=Markup(script),
        script_hash=_csp_hash(script),
        style=Markup((TEMPLATES / "report.css").read_text("utf-8")),
        evaluations=list(run.evaluations.values()),
        comparison=run.comparison,
        dynamics=_curves("", run.metrics["grpo"], _DYNAMICS),
        more_curves=[
            *_curves("GRPO · ", run.metrics["grpo"], _MORE),
            *_curves("BC · ", run.metrics["bc"], (*_MORE, *_DYNAMICS)),
        ],
        sites=_site_rows(run),
        cases=trajectories.choose(run.episodes),
    )


def _curves(
    phase: str, records: Sequence[Mapping[str, float]], wanted: Sequence[_Metric]
) -> list[Curve]:
    """The wanted metrics that have at least two points."""
    curves = []
    for metric in wanted:
        steps, values = workdir.series(records, metric.key)
        if len(values) < 2:
            continue
        now = metric.form.format(plots.smooth(values, plots.smoothing_window(len(values)))[-1])
        label = f"{phase}{metric.title} over {len(values)} updates, {now} at the end"
        drawing = plots.curve(steps, values, label=label, rate=metric.rate)
        curves.append(Curve(phase + metric.title, Markup(drawing), now))
    return curves


def _site_rows(run: workdir.Run) -> list[SiteRow]:
    """The largest gain first."""
    stages = run.evaluations.values()
    rows = []
    for site in sorted({site for stage in stages for site in stage.by_site}):
        rates = {stage.stage: stage.by_site[site] for stage in stages if site in stage.by_site}
        known = [rate.rate for rate in rates.values()]
        rows.append(SiteRow(site, rates, known[-1] - known[0]))
    return sorted(rows, key=lambda row: -row.gain)


def _csp_hash(script: str) -> str:
    """What the page's Content-Security-Policy lets run: this script and no other."""
    digest = hashlib.sha256(script.encode()).digest()
    return "sha256-" + base64.b64encode(digest).decode("ascii")
