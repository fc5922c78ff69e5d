"""Tests of the benchmarks on small shapes."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

from tools import benchmarks
from tools.benchmarks import (
    baseline,
    browser,
    generate,
    infinity,
    language_model,
    packing,
    site,
    timing,
    update,
)
from tools.benchmarks.episodes import Shape, branches
from webagent_jax.config import ConfigError, InfinityConfig
from webagent_jax.policy import matmul

SMALL = Shape(system=20, turns=3, page=(5, 9), placeholder=2, response=4, group=2)


def test_branches_share_first_prompt_and_history():
    turns = branches(SMALL, vocab_size=50, seed=0)
    assert len(turns) == SMALL.group * SMALL.turns
    first_turn, second_turn, _, second_attempt, *_ = turns
    np.testing.assert_array_equal(first_turn.prompt_ids, second_attempt.prompt_ids)
    history_length = SMALL.system + SMALL.placeholder + SMALL.response
    assert history_length + 5 <= len(second_turn.prompt_ids) <= history_length + 9
    np.testing.assert_array_equal(second_turn.prompt_ids[22:26], first_turn.response_ids)
    assert sum(turn.weight * len(turn.response_ids) for turn in turns) == pytest.approx(1.0)


@pytest.mark.slow
def test_update_benchmark_gradients_match_row_per_turn(monkeypatch, capsys):
    monkeypatch.setattr(update, "_SUITE", ((SMALL, 64),))
    report = benchmarks.run("update", benchmarks.Options(repeats=1), print)
    (result,) = json.loads(json.dumps(report))["results"]
    assert result["largest difference of the gradients"] < 1e-5 * result["norm of the gradient"]
    assert result["row per turn / forest"]["tokens"] > 1
    assert result["row per turn / forest"]["flops"] > 1
    assert "row per turn / forest" in capsys.readouterr().out


@pytest.mark.slow
def test_generate_benchmark_reports_trace_and_rates(monkeypatch, capsys):
    constants = {"_TRACES": (SMALL,), "_TASK": 5, "_GROUPS": 2, "_ROWS": 2, "_PROMPT": 70}
    for name, value in constants.items():
        monkeypatch.setattr(generate, name, value)
    report = benchmarks.run("generate", benchmarks.Options(repeats=1), print)
    static_batch, trace = json.loads(json.dumps(report))["results"]
    assert static_batch["ours"]["decode_step_seconds"] > 0
    assert static_batch["decode step / time to read weights and cache once"] > 0
    turns = [turn for seed in range(2) for turn in branches(SMALL, 2048, seed)]
    assert trace["ours"]["prompt_tokens"] == sum(len(turn.prompt_ids) for turn in turns)
    assert 1 <= trace["prompt tokens / prefilled"] < 2
    assert trace["transformers / ours"] > 0
    assert "transformers / ours" in capsys.readouterr().out


@pytest.mark.slow
def test_language_model_benchmark_reports_rates(monkeypatch):
    monkeypatch.setattr(language_model, "_SLOTS", (2,))
    results = list(language_model.run(1, "webagent-tiny", sys.executable))
    dtypes = ["float32", "bfloat16"] if matmul.is_supported() else ["float32"]
    assert [result["matmul_dtype"] for result in results] == np.repeat(dtypes, 7).tolist()
    for result in results:
        assert result["tokens_per_second"] > 0
        assert result["times_the_floor"] > 0.5, result["name"]
        if result["name"].endswith(("with adapters", "after prompts of 449")):
            continue
        for name in ("transformers, float32", "transformers, bfloat16"):
            rate = result[name]["tokens_per_second"]
            assert result[name]["times_faster"] == pytest.approx(result["tokens_per_second"] / rate)
    assert results[2]["name"] == "decoding of 2 sequences"
    assert results[3]["name"] == "decoding of 2 sequences after prompts of 449"
    assert results[5]["name"] == "decoding of 2 sequences, with adapters"


@pytest.mark.parametrize(
    ("names", "message"), [((), "contains none"), (("a.gguf", "b.gguf"), "contains a.gguf, b.gguf")]
)
def test_language_model_benchmark_needs_one_gguf_file(names, message, tmp_path):
    for name in names:
        (tmp_path / name).write_text("")
    with pytest.raises(ConfigError, match=f"must contain one GGUF file, and {message}"):
        next(language_model.run(1, "webagent-tiny", llama_cpp=str(tmp_path)))


def test_language_model_benchmark_sends_absolute_paths_to_node(tmp_path, monkeypatch):
    (tmp_path / "llama").mkdir()
    (tmp_path / "llama" / "a.gguf").write_text("")
    monkeypatch.chdir(tmp_path)
    requests = []

    def run_script(python, script, request):
        requests.append(request)
        raise InterruptedError  # before the measurements

    monkeypatch.setattr(baseline, "run_script", run_script)
    with pytest.raises(InterruptedError):
        next(language_model.run(1, "webagent-tiny", llama_cpp="llama"))
    (request,) = requests
    assert request["folder"] == str(tmp_path / "llama")


@pytest.mark.parametrize(("contexts", "num_apps"), [(1, 9), (8, 8)])
def test_infinity_benchmark_always_runs_all_contexts(contexts, num_apps, monkeypatch):
    apps = []

    def click_elements(suite, task):
        apps.append(task)
        return [], 0.5

    monkeypatch.setattr(infinity, "_click_elements", click_elements)
    monkeypatch.setattr(infinity, "BrowserPool", nullcontext)
    monkeypatch.setattr(infinity, "Infinity", lambda *_: SimpleNamespace(close=list))
    rate = infinity._steps_per_second(InfinityConfig(), list(range(9)), contexts)
    assert sorted(apps) == list(range(num_apps))
    assert rate == contexts / 0.5


def test_packing_benchmark_reports_rows_and_shared_fraction(monkeypatch):
    constants = {
        "_GROUPS": 2,
        "_GROUP_SIZE": 3,
        "_TURNS": 2,
        "_PROMPT_TOKENS": (600,),
        "_ROW_TOKENS": (2_048,),
    }
    for name, value in constants.items():
        monkeypatch.setattr(packing, name, value)
    (result,) = packing.run(repeats=1)
    assert (result["turns"], result["prompt tokens"]) == (12, 12 * 600)
    # The system prompt; per group the first prompt, three responses, a placeholder, three turns.
    num_tokens = 300 + 2 * (300 + 3 * 60 + 12 + 3 * (60 + 188 + 60))
    assert result["rows"] == 2
    assert 0.5 < result["shared fraction"] < 1 - num_tokens / (12 * 660)
    assert result["processor seconds"]["median"] > 0


def test_spread_returns_median_and_p90():
    assert timing.spread(range(1, 12)) == {"median": 6.0, "p90": 10.0}


def test_site_pages_contain_given_number_of_elements():
    assert site.large(3_000).count("<a ") + site.large(3_000).count("<span>") == 2_000
    assert site.large(3_000).count("<div>") == 1_000
    assert site.table(500).count("<tr>") == 500
    assert site.table(3) == site.table(3)


@pytest.mark.browser
@pytest.mark.slow
def test_browser_benchmark_reports_pages_steps_and_waits(monkeypatch, capsys):
    constants = {"_ELEMENTS": 30, "_ROWS": 3, "_CONTEXTS": (1, 2), "_STEPS": 6}
    for name, value in (constants | {"_DELAYS_PER_KIND": 1, "_THINK_SECONDS": 0.0}).items():
        monkeypatch.setattr(browser, name, value)
    report = json.loads(json.dumps(benchmarks.run("browser", benchmarks.Options(repeats=1), print)))
    *pages, steps, settle_wait, idle_wait, fixed_wait = report["results"]
    assert [page["name"].partition(": ")[2] for page in pages] == [
        "small",
        "3,000 elements",
        "500 rows",
    ]
    for page in pages:
        assert 0 < page["compact"]["median"] <= page["compact"]["p90"]
        assert page["webarena_lite"]["median"] > 0
        assert page["empty evaluate"]["median"] > 0
    assert set(steps["ours"]) == {"1", "2"}
    assert min(steps["ours"].values()) > 0
    assert set(site.KINDS) < set(settle_wait)
    assert settle_wait["all"]["right"] == 1.0
    assert idle_wait["name"].endswith("networkidle")
    assert fixed_wait["all"]["ms"] > 500
    assert "steps per second" in capsys.readouterr().out


def test_baseline_ask_raises_on_process_failure():
    with pytest.raises(RuntimeError, match="failed"):
        baseline.run_script("false", "playwright/settle.py", {})


def test_speculation_benchmark_needs_episodes():
    with pytest.raises(ConfigError, match="set --episodes to a train grpo workdir"):
        benchmarks.run("speculation", benchmarks.Options(repeats=1), print)
