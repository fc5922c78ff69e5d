"""Synthetic work directory: three stages, six sites, two updates, screenshots drawn with PIL."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw

from webagent_jax import types
from webagent_jax.config import RunConfig
from webagent_jax.tracking import atomic_files, episode_log, metric_writers, statistics

SITES = ("login-user", "click-checkboxes", "search-engine", "click-tab", "enter-text", "use-menu")
STAGES = {"base": 0.04, "bc": 0.45, "grpo": 0.75}
INJECTION = (
    "<script>document.title = 'owned'</script><img src=x onerror=\"document.title='owned'\">"
)


def make_screenshot(num_fields: int, num_filled: int, size: tuple[int, int] = (640, 400)) -> bytes:
    """Return a JPEG of a small form in the upper left corner of an empty viewport."""
    image = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(image)
    draw.rectangle((10, 10, 260, 44), fill="#ffe9a8")
    draw.text((18, 20), "Log in and press Login.", fill="black")
    for i in range(num_fields):
        draw.rectangle((20, 60 + 44 * i, 230, 92 + 44 * i), outline="#777777")
        draw.text((28, 70 + 44 * i), "karrie" if i < num_filled else "", fill="black")
    draw.rectangle((20, 60 + 44 * num_fields, 100, 92 + 44 * num_fields), fill="#3366cc")
    draw.text((44, 70 + 44 * num_fields), "Login", fill="white")
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=80)
    return buffer.getvalue()


def make_observation(num_fields: int, num_filled: int) -> types.Observation:
    elements = {
        str(i + 1): types.Element(
            "textbox",
            f"Field {i + 1}",
            "karrie" if i < num_filled else "",
            (20, 60 + 44 * i, 210, 32),
        )
        for i in range(num_fields)
    }
    elements[str(num_fields + 1)] = types.Element(
        "button", "Login", box=(20, 60 + 44 * num_fields, 80, 32)
    )
    lines = [
        f"{e.kind} {e.name} [{i}]" + (f" = {e.value}" if e.value else "")
        for i, e in elements.items()
    ]
    text = "\n".join(["Log in and press Login.", INJECTION, *lines])
    return types.Observation(text, "http://127.0.0.1/login", "Login", elements=elements)


def make_completion(num_tokens: int) -> types.Completion:
    return types.Completion(
        token_ids=np.arange(num_tokens, dtype=np.int32),
        logp=np.linspace(-2, 0, num_tokens, dtype=np.float32),
        policy_version=np.zeros(num_tokens, np.int32),
        finish="stop",
    )


def make_episode(
    task_id: str, *, success: bool, with_screenshots: bool, group: int = -1, attempt: int = 0
) -> types.Episode:
    num_fields = 2
    turns = []
    for i in range(num_fields + 1):
        action: types.Action | types.ParseError
        if i < num_fields:
            action = types.Action(types.ActionKind.TYPE, str(i + 1), "karrie")
        else:
            action = types.Action(types.ActionKind.CLICK, str(num_fields + 1))
        thought = f"Field {i + 1} is next." if i < num_fields else "All is filled in: log in."
        response = f"<think>{thought}</think> <answer>do(…)</answer>"
        if i == 1 and not success:
            action, response = types.ParseError("the reply holds no action"), "I would rather not."
        turns.append(
            types.Turn(
                prompt_ids=np.arange(80 + 20 * i, dtype=np.int32),
                completion=make_completion(12 + i),
                response_text=response,
                action=action,
                observation=make_observation(num_fields, i),
                seconds={"model": 0.1, "browser": 0.2},
                screenshot=make_screenshot(num_fields, i) if with_screenshots else None,
            )
        )
    site = task_id.split("/")[1]
    return types.Episode(
        task=types.Task(task_id, "miniwob", (site,), "", "http://127.0.0.1/", 7),
        intent='Enter the username "karrie" and the password "karrie" and press Login.',
        turns=tuple(turns),
        reward=float(success),
        outcome=types.Outcome.SUCCESS if success else types.Outcome.FAILURE,
        seconds=3.2,
        final_screenshot=make_screenshot(num_fields, num_fields) if with_screenshots else None,
        group=group,
        attempt=attempt,
    )


def make_eval_report(
    stage: str, success_rate: float, episodes_per_site: int = 8
) -> types.EvalReport:
    rng = np.random.default_rng(len(stage))
    episodes = []
    by_site = {}
    for i, site in enumerate(SITES):
        probability = (
            np.clip(success_rate + 0.1 * (i - 2), 0, 1) if success_rate > 0.1 else success_rate
        )
        successes = rng.random(episodes_per_site) < probability
        by_site[site] = types.SuccessRate(float(successes.mean()), episodes_per_site)
        episodes += [
            make_episode(
                f"miniwob/{site}/{seed}", success=bool(success), with_screenshots=seed == 0
            )
            for seed, success in enumerate(successes)
        ]
    num_successes, n = sum(e.reward == 1 for e in episodes), len(episodes)
    return types.EvalReport(
        success_rate=num_successes / n,
        n=n,
        ci95=statistics.wilson(num_successes, n),
        by_site=by_site,
        by_outcome={types.Outcome.SUCCESS: num_successes, types.Outcome.FAILURE: n - num_successes},
        mean_turns=3.0,
        mean_response_tokens=13.0,
        seconds=60.0,
        episodes=tuple(episodes),
    )


def make_training_episodes(update: int) -> list[types.Episode]:
    """Return two groups of four attempts; the first attempt of each group fails."""
    return [
        make_episode(
            f"miniwob/{SITES[group]}/{1000 + update}",
            success=attempt > 0,
            with_screenshots=False,
            group=10 * update + group,
            attempt=attempt,
        )
        for group in (0, 1)
        for attempt in range(4)
    ]


def build_workdir(path: Path) -> Path:
    summary: dict[str, object] = {
        "seconds": {"BC": 95.0, "M-GRPO": 380.0, "evaluation": 120.0},
        "hardware": {"device": "cpu", "cores": 2, "memory": "8 GB"},
    }
    for stage, rate in STAGES.items():
        report = make_eval_report(stage, rate)
        summary[stage] = episode_log.eval_json(report, RunConfig(), "0123456789abcdef")
        log = path / "eval" / stage / "episodes" / "episodes.jsonl"
        episode_log.append_episodes(log, report.episodes)
    for update in (1, 2):
        log = path / "grpo" / "episodes" / f"update-{update:05d}.jsonl"
        episode_log.append_episodes(log, make_training_episodes(update))
    atomic_files.write_json(path / "summary.json", summary)
    rng = np.random.default_rng(0)
    for phase in ("bc", "grpo"):
        writer = metric_writers.JsonlWriter(path / phase / "metrics.jsonl")
        for step in range(1, 41):
            rise = step / 40
            noise = rng.normal(0, 0.06)
            writer.write(
                step,
                {"loss": 2 - rise + noise}
                if phase == "bc"
                else {
                    "reward": float(np.clip(0.4 + 0.35 * rise + noise, 0, 1)),
                    "episode/response_tokens": 220 - 60 * rise + 200 * noise,
                    "episode/num_turns": 5.5 - 2 * rise + 4 * noise,
                    "loss": 2 - rise + noise,
                    "kl": 0.01 * rise,
                    "entropy": 0.4 - 0.2 * rise,
                },
            )
    return path


@pytest.fixture(scope="session")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a work directory that tests share; copy it before changing it."""
    return build_workdir(tmp_path_factory.mktemp("run"))


@pytest.fixture
def unscored_workdir(tmp_path: Path) -> Path:
    """Evaluation without an episode with a reward."""
    record = {
        "success_rate": None,
        "n": 0,
        "ci95": [0.0, 1.0],
        "by_outcome": {"INFRA": 3},
        "by_max_turns": [{"max_turns": 5, "success_rate": None, "n": 0, "ci95": [0.0, 1.0]}],
        "pass_at_k": {"1": {"rate": None, "ci95": [0.0, 1.0]}},
        "tasks": [],
    }
    atomic_files.write_json(tmp_path / "eval.json", record)
    return tmp_path
