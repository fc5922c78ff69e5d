"""Tests of the data files of the episode viewer."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.report.conftest import (
    SITES,
    build_workdir,
    make_episode,
    make_observation,
    make_training_episodes,
)
from webagent_jax import policy, types
from webagent_jax.agent import ChatTokenizer
from webagent_jax.report import episode_pages, run_loader, token_text, trajectories
from webagent_jax.tracking import atomic_files, episode_log

NO_DECODER = token_text.TokenDecoder(None)


def read_index(path: Path) -> Any:
    script = (path / "report" / "index.js").read_text("ascii")
    return json.loads(script.removeprefix("trajectories.index(").removesuffix(");\n"))


def read_chunk(path: Path, log: str, number: int) -> Any:
    script = (path / "report" / log / f"{number}.js").read_text("ascii")
    head = f'trajectories.chunk("{log}", {number}, '
    assert script.startswith(head)
    return json.loads(script.removeprefix(head).removesuffix(");\n"))


def write_pages(path: Path) -> int:
    return episode_pages.write(path, run_loader.load_run(path).logs).num_episodes


@pytest.fixture(scope="module")
def report_workdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = build_workdir(tmp_path_factory.mktemp("built"))
    assert write_pages(path) == 3 * 48 + 2 * 8
    return path


def test_index_lists_logs_in_run_order(report_workdir: Path) -> None:
    index = read_index(report_workdir)
    assert [log["id"] for log in index["logs"]] == ["base", "bc", "update-1", "update-2", "grpo"]
    assert len(index["episodes"]) == 160
    assert len(index["tasks"]) == 6 * 8 + 4  # evaluations share their tasks
    assert {task["site"] for task in index["tasks"]} == set(SITES)


def test_index_entries_point_to_their_turns(report_workdir: Path) -> None:
    index = read_index(report_workdir)
    load_chunk = functools.cache(lambda log, number: read_chunk(report_workdir, log, number))
    for entry in index["episodes"]:
        log = index["logs"][entry["log"]]["id"]
        turns = load_chunk(log, entry["chunk"])[entry["index"]]["turns"]
        assert len(turns) == len(entry["trace"]) == 3


def test_report_screenshots_are_files_of_episode_log(report_workdir: Path) -> None:
    screenshots = {
        turn["shot"]["name"]
        for detail in read_chunk(report_workdir, "grpo", 0)
        for turn in detail["turns"]
        if turn["shot"]
    }
    report_files = {path.name for path in (report_workdir / "report" / "screenshots").iterdir()}
    assert screenshots and screenshots <= report_files
    # All stages have the same screenshots.
    log_screenshots = report_workdir / "eval" / "base" / "episodes" / "screenshots"
    assert all(
        (log_screenshots / name).samefile(report_workdir / "report" / "screenshots" / name)
        for name in screenshots
    )


def test_only_modified_logs_are_rewritten(report_workdir: Path) -> None:
    def read_mtimes() -> dict[str, int]:
        paths = (report_workdir / "report").rglob("entries.json")
        return {path.parent.name: path.stat().st_mtime_ns for path in paths}

    mtimes = read_mtimes()
    write_pages(report_workdir)
    assert read_mtimes() == mtimes
    log = report_workdir / "grpo" / "episodes" / "update-00002.jsonl"
    episode_log.append_episodes(log, make_training_episodes(3)[:1])
    assert write_pages(report_workdir) == 161
    assert {name for name, mtime in read_mtimes().items() if mtimes[name] != mtime} == {"update-2"}
    assert len(read_chunk(report_workdir, "update-2", 0)) == 9


def test_chunk_size_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(episode_pages, "_CHUNK_BYTES", 6_000)
    episode_log.append_episodes(
        tmp_path / "episodes" / "update-00001.jsonl", make_training_episodes(1)
    )
    write_pages(tmp_path)
    entries = read_index(tmp_path)["episodes"]
    assert [(e["chunk"], e["index"]) for e in entries][:3] == [(0, 0), (0, 1), (1, 0)]
    assert len(list((tmp_path / "report" / "update-1").glob("*.js"))) == 4


def test_chunk_files_escape_web_content(tmp_path: Path) -> None:
    hostile = '</script><script>alert(1)</script>\u2028"); alert(1); ("\ud800\x00'
    turns = make_training_episodes(1)[0].turns
    turn = dataclasses.replace(
        turns[0],
        response_text=hostile,
        observation=types.Observation(hostile, hostile, hostile, error=hostile),
        action=types.ParseError(hostile),
    )
    task = types.Task(hostile, "miniwob", (hostile,), hostile, hostile)
    hostile_episode = types.Episode(
        task, hostile, (turn,), None, types.Outcome.INFRA, answer=hostile, infra_error=hostile
    )
    episode_log.append_episodes(tmp_path / "episodes" / "episodes.jsonl", [hostile_episode])
    write_pages(tmp_path)
    (entry,) = read_index(tmp_path)["episodes"]
    assert entry["infra_error"] == hostile and entry["reward"] is None
    (detail,) = read_chunk(tmp_path, "eval", 0)
    assert detail["turns"][0]["response"] == hostile
    assert detail["turns"][0]["action"] == f"Not executed: {hostile}"


def test_corrupt_log_error_names_line(tmp_path: Path) -> None:
    log = tmp_path / "episodes" / "update-00001.jsonl"
    episode_log.append_episodes(log, make_training_episodes(1))
    log.write_bytes(b"{oops\n" + log.read_bytes())
    with pytest.raises(ValueError, match="line 1"):
        write_pages(tmp_path)


# --- one episode ----------------------------------------------------------------------------------


def make_solved_episode(with_screenshots: bool = False) -> types.Episode:
    return make_episode("miniwob/login-user/1", success=True, with_screenshots=with_screenshots)


def test_turn_contains_observation_action_and_changes() -> None:
    first, _, last = trajectories.detail(make_solved_episode(), NO_DECODER)["turns"]
    assert first["action"] == "Type “karrie” into textbox “Field 1”"
    assert first["thought"] == "Field 1 is next."
    assert [first["observation"][i] for i in first["acted"]] == ["textbox Field 1 [1]"]
    assert first["page_changes"] == [
        ("-", "textbox Field 1 [1]"),
        ("+", "textbox Field 1 [1] = karrie"),
    ]
    assert last["action"] == "Click on button “Login”" and last["page_changes"] == []
    assert (first["prompt_tokens"], first["response_tokens"]) == (80, 12)
    assert first["pieces"] is None and len(first["logp"]) == 12 and "prompt" not in first
    assert first["seconds"] == {"model": 0.1, "browser": 0.2} and first["versions"] == [0, 0]


def test_call_is_the_response_without_thought() -> None:
    episode = make_solved_episode()
    # The chat templates of some models write the opening tag in the prompt.
    response = (
        'I could do(action="Wait").\n</think>\n<answer> do(action="Click", element="1") </answer>'
    )
    turn = dataclasses.replace(episode.turns[0], response_text=response)
    (shown,) = trajectories.detail(dataclasses.replace(episode, turns=(turn,)), NO_DECODER)["turns"]
    assert shown["call"] == 'do(action="Click", element="1")'


def test_entry_contains_trace_and_token_count() -> None:
    assert trajectories.entry(make_solved_episode())["trace"] == "..."
    failed_episode = make_episode("miniwob/login-user/1", success=False, with_screenshots=False)
    error_observation = dataclasses.replace(
        failed_episode.turns[1].observation, error="no such element"
    )
    turns = (
        failed_episode.turns[0],
        dataclasses.replace(failed_episode.turns[1], observation=error_observation),
    )
    entry = trajectories.entry(dataclasses.replace(failed_episode, turns=turns))
    assert entry["trace"] == "ex" and entry["tokens"] == 25 and entry["reward"] == 0.0
    assert entry["logp"] == pytest.approx(-1.0)


def test_non_finite_logp_becomes_none() -> None:
    logp = np.array([-np.inf, np.nan, -0.5], np.float32)
    solved_episode = make_solved_episode()
    turn = dataclasses.replace(
        solved_episode.turns[0],
        completion=dataclasses.replace(solved_episode.turns[0].completion, logp=logp),
    )
    one_turn_episode = dataclasses.replace(solved_episode, turns=(turn,))
    assert trajectories.detail(one_turn_episode, NO_DECODER)["turns"][0]["logp"] == [
        None,
        None,
        -0.5,
    ]
    assert trajectories.entry(one_turn_episode)["logp"] == -0.5


def test_episode_without_turns_has_no_turns() -> None:
    empty_episode = dataclasses.replace(
        make_solved_episode(), turns=(), reward=None, outcome=types.Outcome.INFRA
    )
    assert trajectories.detail(empty_episode, NO_DECODER) == {"turns": [], "last": None}
    assert trajectories.entry(empty_episode)["logp"] is None


def test_screenshot_is_cropped_and_marked() -> None:
    shot = trajectories.detail(make_solved_episode(with_screenshots=True), NO_DECODER)["turns"][0][
        "shot"
    ]
    assert shot["size"] == (640, 400) and shot["mark"] == (20, 60, 210, 32)
    x, y, width, height = shot["crop"]
    assert (x, y) == (4, 4) and 258 < width < 272 and 178 < height < 192


def test_unreadable_screenshot_is_omitted() -> None:
    solved_episode = make_solved_episode(with_screenshots=True)
    turns = tuple(dataclasses.replace(turn, screenshot=b"no JPEG") for turn in solved_episode.turns)
    detail = trajectories.detail(dataclasses.replace(solved_episode, turns=turns), NO_DECODER)
    assert detail["turns"][0]["shot"] is None and detail["last"] is not None


def test_long_page_changes_are_truncated() -> None:
    solved_episode = make_solved_episode()
    lines = "\n".join(f"line {i}" for i in range(100))
    next_observation = dataclasses.replace(
        make_observation(2, 1), text=lines, url="http://127.0.0.1/next"
    )
    turns = (
        solved_episode.turns[0],
        dataclasses.replace(solved_episode.turns[1], observation=next_observation),
    )
    turn, _ = trajectories.detail(dataclasses.replace(solved_episode, turns=turns), NO_DECODER)[
        "turns"
    ]
    assert turn["page_changes"][0] == ("=", "new URL http://127.0.0.1/next")
    assert len(turn["page_changes"]) == 42 and re.fullmatch(
        r"and \d+ more .*", turn["page_changes"][-1][1]
    )


# --- tokens as text -------------------------------------------------------------------------------


def test_prompt_deltas_reconstruct_prompts(tmp_path: Path) -> None:
    decoder = token_text.TokenDecoder(policy.resolve_dir("webagent-tiny"))
    tokenizer = ChatTokenizer(policy.resolve_dir("webagent-tiny"))
    ids = [tokenizer.encode(words) for words in ("a 😀 button", "a 😀 button Ok", "a link")]
    solved_episode = make_solved_episode()
    turns = tuple(
        dataclasses.replace(turn, prompt_ids=prompt)
        for turn, prompt in zip(solved_episode.turns, ids, strict=True)
    )
    turns = trajectories.detail(dataclasses.replace(solved_episode, turns=turns), decoder)["turns"]
    prompt_bytes, prompts = b"", []
    for turn in turns:
        prefix_len, suffix = turn["prompt"]
        # JavaScript counts UTF-16 units.
        prompt_bytes = prompt_bytes[: 2 * prefix_len] + suffix.encode("utf-16-le")
        prompts.append(prompt_bytes.decode("utf-16-le"))
    assert prompts == [decoder.text(prompt) for prompt in ids]
    assert turns[1]["prompt"][1] == " Ok"


def test_pieces_concatenate_to_response_text(tmp_path: Path) -> None:
    atomic_files.write_json(
        tmp_path / "config.json", {"config": {"policy": {"path": "webagent-tiny"}}}
    )
    path = token_text.directory(tmp_path)
    assert path is not None
    ids = ChatTokenizer(path).encode_response('do(action="Click", element="7")')
    pieces = token_text.TokenDecoder(path).pieces(ids)
    assert pieces is not None and "".join(pieces) == 'do(action="Click", element="7")'
    assert pieces[-1] == ""


def test_tokens_of_an_adapter_need_no_weights(tmp_path: Path) -> None:
    base = tmp_path / "base"  # as an Orbax checkpoint, which no adapter can be merged into
    shutil.copytree(policy.resolve_dir("webagent-tiny"), base)
    for file in base.glob("*.safetensors"):
        file.unlink()
    adapter = {"base_model_name_or_path": str(base), "r": 2, "lora_alpha": 2}
    adapter_file = tmp_path / "adapter" / "adapter_config.json"
    atomic_files.write_json(adapter_file, adapter)
    atomic_files.write_json(
        tmp_path / "config.json", {"config": {"policy": {"path": str(adapter_file.parent)}}}
    )
    assert token_text.directory(tmp_path) == base
    adapter_file.write_text("{")
    assert token_text.directory(tmp_path) is None


def test_missing_tokenizer_returns_none(tmp_path: Path) -> None:
    assert token_text.directory(tmp_path) is None
    assert token_text.directory(tmp_path / "nowhere") is None
    (tmp_path / "tokenizer.json").write_text("no tokenizer")
    assert token_text.TokenDecoder(tmp_path).pieces(np.array([1], np.int32)) is None


# --- advantages -----------------------------------------------------------------------------------


def read_advantages(path: Path, run_config: dict[str, Any] | None) -> list[float | None]:
    episode_pages.write(path, run_loader.load_run(path).logs, run_config)
    return [entry.get("advantage") for entry in read_index(path)["episodes"]]


def test_advantages_of_groups_follow_config(tmp_path: Path) -> None:
    # Two groups of four attempts; the first attempt of each fails.
    log = tmp_path / "episodes" / "update-00001.jsonl"
    episode_log.append_episodes(log, make_training_episodes(1))
    assert read_advantages(tmp_path, None) == [None] * 8
    # Rewards 0, 1, 1, 1: mean 3/4, unbiased standard deviation 1/2.
    expected = [-1.4997, 0.4999, 0.4999, 0.4999] * 2
    assert read_advantages(tmp_path, {"seed": 1}) == pytest.approx(expected, abs=1e-4)
    shutil.rmtree(tmp_path / "report")
    only_success = {"grpo": {"advantage_estimator": "success", "kl_beta": 0.0}}
    assert read_advantages(tmp_path, only_success) == [None, 1.0, 1.0, 1.0] * 2
    shutil.rmtree(tmp_path / "report")
    assert read_advantages(tmp_path, {"option_of_another_version": 1}) == [None] * 8


@pytest.mark.parametrize("filter_groups", [True, False])
def test_groups_that_are_not_trained_on_have_no_advantages(
    filter_groups: bool, tmp_path: Path
) -> None:
    episodes = make_training_episodes(1)
    solved = [dataclasses.replace(e, reward=1.0) for e in episodes[:4]]
    log = tmp_path / "episodes" / "update-00001.jsonl"
    episode_log.append_episodes(log, [*solved, *episodes[4:]])
    awr = {"advantage_estimator": "exponential", "policy_loss": "logp"}
    advantages = read_advantages(tmp_path, {"grpo": awr | {"filter_groups": filter_groups}})
    assert advantages[:4] == ([None] * 4 if filter_groups else [1.0] * 4)
    # Rewards 0, 1, 1, 1: exp(-3/4) and exp(1/4).
    assert advantages[4:] == pytest.approx([0.4724, 1.284, 1.284, 1.284], abs=1e-4)
    shutil.rmtree(tmp_path / "report")
    # Advantages of turns, which decide whether a group is trained on, are not computed.
    steps = {"step_advantage_weight": 1.0, "filter_groups": filter_groups}
    advantages = read_advantages(tmp_path, {"grpo": steps})
    assert advantages[:4] == ([None] * 4 if filter_groups else [0.0] * 4)


def test_group_in_logs_of_two_processes_has_advantages(tmp_path: Path) -> None:
    """A run that continues with another number of processes finishes a group in another log."""
    episodes = make_training_episodes(1)
    failed = dataclasses.replace(episodes[1], reward=None, outcome=types.Outcome.INFRA)
    log = tmp_path / "episodes" / "update-00001.jsonl"
    episode_log.append_episodes(log, [episodes[0], failed, *episodes[2:4]])
    # Rewards 0, 1, 1: mean 2/3, unbiased standard deviation 0.577.
    first, second, *others = read_advantages(tmp_path, {"seed": 1})
    assert second is None
    assert [first, *others] == pytest.approx([-1.1545, 0.5772, 0.5772], abs=1e-3)
    # This log comes first, but its second attempt is the later one.
    other = log.with_name("update-00001-process-1.jsonl")
    episode_log.append_episodes(other, [episodes[1], *episodes[4:]])
    advantages = read_advantages(tmp_path, {"seed": 1})
    assert advantages.pop(6) is None
    assert advantages == pytest.approx([0.5, -1.5, 0.5, 0.5, 0.5, -1.5, 0.5, 0.5], abs=1e-3)
    shutil.rmtree(tmp_path / "report")
    # The mean of the batch of both processes: 6 of 8.
    batch_mean = {"grpo": {"advantage_estimator": "batch_mean"}}
    expected = [0.25, -0.75, 0.25, 0.25, 0.25, -0.75, None, 0.25, 0.25]
    assert read_advantages(tmp_path, batch_mean) == expected


def test_advantages_that_log_does_not_determine_are_omitted(tmp_path: Path) -> None:
    log = tmp_path / "episodes" / "update-00001.jsonl"
    episode_log.append_episodes(log, make_training_episodes(1))
    batch_mean = {"advantage_estimator": "batch_mean"}
    assert None not in read_advantages(tmp_path, {"grpo": batch_mean})
    replay = {"grpo": {"success_replay": True}, "suite": {"train_seeds_per_task": 5}}
    # An asynchronous update trains on groups in the logs of earlier ones.
    asynchronous = {"grpo": batch_mean | {"max_staleness": 1}}
    for options in ({"rollout": {"group_timeout": 60.0}}, replay, asynchronous):
        shutil.rmtree(tmp_path / "report")
        assert read_advantages(tmp_path, options) == [None] * 8


def test_infra_attempt_has_no_advantage_and_its_retry_has_one(tmp_path: Path) -> None:
    episodes = make_training_episodes(1)[:4]
    failed = dataclasses.replace(episodes[1], reward=None, outcome=types.Outcome.INFRA)
    log = tmp_path / "episodes" / "update-00001.jsonl"
    episode_log.append_episodes(log, [episodes[0], failed, *episodes[1:]])
    advantages = read_advantages(tmp_path, {"seed": 1})
    assert advantages[1] is None
    assert [advantages[0], *advantages[2:]] == pytest.approx([-1.5, 0.5, 0.5, 0.5], abs=1e-3)


def test_evaluations_have_no_advantages(report_workdir: Path) -> None:
    run = run_loader.load_run(report_workdir)
    logs = [log for log in run.logs if log.update is None]
    episode_pages.write(report_workdir, logs, {"seed": 1})
    assert not any("advantage" in entry for entry in read_index(report_workdir)["episodes"])
