"""The benchmarks measure what they say: the same update on both sides, and real shapes."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from tools import benchmarks
from tools.benchmarks import (
    baseline,
    browser,
    generate,
    language_model,
    packing,
    site,
    timing,
    update,
)
from tools.benchmarks.episodes import Shape, branches

SMALL = Shape(system=20, turns=3, page=(5, 9), placeholder=2, response=4, group=2)


def test_siblings_share_the_first_prompt_and_turns_their_history():
    turns = branches(SMALL, vocab_size=50, seed=0)
    assert len(turns) == SMALL.group * SMALL.turns
    first, second, _, sibling, *_ = turns
    np.testing.assert_array_equal(first.prompt_ids, sibling.prompt_ids)
    grown = SMALL.system + SMALL.placeholder + SMALL.response
    assert grown + 5 <= len(second.prompt_ids) <= grown + 9
    np.testing.assert_array_equal(second.prompt_ids[22:26], first.response_ids)
    assert sum(t.weight * len(t.response_ids) for t in turns) == pytest.approx(1.0)


@pytest.mark.slow
def test_forest_rows_are_the_same_update_as_a_row_per_turn(monkeypatch, capsys):
    monkeypatch.setattr(update, "_SUITE", ((SMALL, 64),))
    report = benchmarks.run("update", 1, "", show=print)
    (result,) = json.loads(json.dumps(report))["results"]
    assert result["largest difference of the gradients"] < 1e-5 * result["norm of the gradient"]
    assert result["row per turn / forest"]["tokens"] > 1
    assert result["row per turn / forest"]["flops"] > 1
    assert "row per turn / forest" in capsys.readouterr().out


@pytest.mark.slow
def test_sampling_is_measured_on_the_same_trace(monkeypatch, capsys):
    pytest.importorskip("transformers")
    small = {"_TRACES": (SMALL,), "_TASK": 5, "_GROUPS": 2, "_ROWS": 2, "_PROMPT": 70}
    for name, value in small.items():
        monkeypatch.setattr(generate, name, value)
    report = benchmarks.run("generate", 1, "", show=print)
    static, trace = json.loads(json.dumps(report))["results"]
    assert static["ours"]["decode_step_seconds"] > 0
    assert static["decode step / time to read weights and cache once"] > 0.5
    turns = [turn for seed in range(2) for turn in branches(SMALL, 2048, seed)]
    assert trace["ours"]["prompt_tokens"] == sum(len(turn.prompt_ids) for turn in turns)
    assert 1 <= trace["prompt tokens / prefilled"] < 2
    assert trace["transformers / ours"] > 0
    assert "transformers / ours" in capsys.readouterr().out


@pytest.mark.slow
def test_a_policy_is_measured_against_floor_and_peer(monkeypatch):
    monkeypatch.setattr(language_model, "_SLOTS", (2,))
    update, prefill, decoding = language_model.run(1, "webagent-tiny", sys.executable)
    for result in (update, prefill, decoding):
        assert result["tokens_per_second"] > 0
        assert result["times_the_floor"] > 0.5, result["name"]
        for name in ("transformers, float32", "transformers, bfloat16"):
            rate = result[name]["tokens_per_second"]
            assert result[name]["times_faster"] == pytest.approx(result["tokens_per_second"] / rate)
    assert decoding["name"] == "decoding of 2 sequences"


def test_rows_are_built_of_prompts_as_long_as_they_say(monkeypatch):
    small = {
        "_GROUPS": 2,
        "_GROUP_SIZE": 3,
        "_TURNS": 2,
        "_PROMPT_TOKENS": (600,),
        "_ROW_TOKENS": (2_048,),
    }
    for name, value in small.items():
        monkeypatch.setattr(packing, name, value)
    (found,) = packing.run(repeats=1)
    assert (found["turns"], found["prompt tokens"]) == (12, 12 * 600)
    # The system prompt, then by group: its first prompt, three replies; a placeholder, three turns.
    tokens = 300 + 2 * (300 + 3 * 60 + 12 + 3 * (60 + 188 + 60))
    assert found["rows"] == 2
    assert 0.5 < found["shared fraction"] < 1 - tokens / (12 * 660)
    assert found["processor seconds"]["median"] > 0


def test_spread_is_median_and_ninetieth_percentile():
    assert timing.spread(range(1, 12)) == {"median": 6.0, "p90": 10.0}


def test_the_pages_are_as_large_as_they_say():
    assert site.large(3_000).count("<a ") + site.large(3_000).count("<span>") == 2_000
    assert site.large(3_000).count("<div>") == 1_000
    assert site.table(500).count("<tr>") == 500
    assert site.table(3) == site.table(3)


@pytest.mark.browser
def test_the_browser_is_measured_on_pages_that_change(monkeypatch, capsys):
    small = {"_ELEMENTS": 30, "_ROWS": 3, "_CONTEXTS": (1, 2), "_STEPS": 6}
    for name, value in (small | {"_DELAYS_PER_KIND": 1, "_THINK_SECONDS": 0.0}).items():
        monkeypatch.setattr(browser, name, value)
    report = json.loads(json.dumps(benchmarks.run("browser", 1, "", show=print)))
    *pages, steps, ours, idle, slept = report["results"]
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
    assert set(site.KINDS) < set(ours)
    assert ours["all"]["right"] == 1.0
    assert idle["name"].endswith("networkidle")
    assert slept["all"]["ms"] > 500
    assert "steps per second" in capsys.readouterr().out


def test_an_unhappy_peer_is_told():
    with pytest.raises(RuntimeError, match="failed"):
        baseline.run_script("false", "playwright/settle.py", {})
