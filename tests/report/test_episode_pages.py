"""The files that the trajectory browser reads."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.report.conftest import SITES, build_workdir, episode, observation, training
from webagent_jax import policy, types
from webagent_jax.agent import ChatTokenizer
from webagent_jax.report import episode_pages, run_loader, token_text, trajectories
from webagent_jax.tracking import atomic_files, episode_log

NO_TEXT = token_text.TokenDecoder(None)


def read_index(path: Path) -> Any:
    called = (path / "report" / "index.js").read_text("ascii")
    return json.loads(called.removeprefix("trajectories.index(").removesuffix(");\n"))


def read_chunk(path: Path, log: str, number: int) -> Any:
    called = (path / "report" / log / f"{number}.js").read_text("ascii")
    head = f'trajectories.chunk("{log}", {number}, '
    assert called.startswith(head)
    return json.loads(called.removeprefix(head).removesuffix(");\n"))


def write(path: Path) -> int:
    return episode_pages.write(path, run_loader.load_run(path).logs)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = build_workdir(tmp_path_factory.mktemp("built"))
    assert write(path) == 3 * 48 + 2 * 8
    return path


def test_index_lists_all_logs_in_the_order_of_the_run(built: Path) -> None:
    index = read_index(built)
    assert [log["id"] for log in index["logs"]] == ["base", "bc", "update-1", "update-2", "grpo"]
    assert len(index["episodes"]) == 160
    assert len(index["tasks"]) == 6 * 8 + 4  # evaluations share theirs
    assert {task["site"] for task in index["tasks"]} == set(SITES)


def test_every_line_of_the_index_finds_its_steps(built: Path) -> None:
    index = read_index(built)
    read = functools.cache(lambda log, number: read_chunk(built, log, number))
    for entry in index["episodes"]:
        log = index["logs"][entry["log"]]["id"]
        steps = read(log, entry["chunk"])[entry["index"]]["steps"]
        assert len(steps) == len(entry["trace"]) == 3


def test_pictures_are_kept_once_beside_the_page(built: Path) -> None:
    shots = {
        step["shot"]["name"]
        for detail in read_chunk(built, "grpo", 0)
        for step in detail["steps"]
        if step["shot"]
    }
    there = {picture.name for picture in (built / "report" / "pictures").iterdir()}
    assert shots and shots <= there
    kept = built / "eval" / "base" / "episodes" / "pictures"  # drawn alike in all stages
    assert all((kept / name).samefile(built / "report" / "pictures" / name) for name in shots)


def test_only_logs_that_changed_are_read_again(built: Path) -> None:
    def written() -> dict[str, int]:
        paths = (built / "report").rglob("entries.json")
        return {path.parent.name: path.stat().st_mtime_ns for path in paths}

    before = written()
    write(built)
    assert written() == before
    log = built / "grpo" / "episodes" / "update-00002.jsonl"
    episode_log.append_episodes(log, training(3)[:1])
    assert write(built) == 161
    assert {name for name, at in written().items() if before[name] != at} == {"update-2"}
    assert len(read_chunk(built, "update-2", 0)) == 9


def test_a_file_holds_neighbours_up_to_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(episode_pages, "_CHUNK_BYTES", 6_000)
    episode_log.append_episodes(tmp_path / "episodes" / "update-00001.jsonl", training(1))
    write(tmp_path)
    entries = read_index(tmp_path)["episodes"]
    assert [(e["chunk"], e["index"]) for e in entries][:3] == [(0, 0), (0, 1), (1, 0)]
    assert len(list((tmp_path / "report" / "update-1").glob("*.js"))) == 4


def test_what_the_web_said_cannot_end_a_script(tmp_path: Path) -> None:
    hostile = '</script><script>alert(1)</script>\u2028"); alert(1); ("\ud800\x00'
    turns = training(1)[0].turns
    turn = dataclasses.replace(
        turns[0],
        response_text=hostile,
        observation=types.Observation(hostile, hostile, hostile, error=hostile),
        action=types.ParseError(hostile),
    )
    task = types.Task(hostile, "miniwob", (hostile,), hostile, hostile)
    told = types.Episode(
        task, hostile, (turn,), None, types.Outcome.INFRA, answer=hostile, infra_error=hostile
    )
    episode_log.append_episodes(tmp_path / "episodes" / "episodes.jsonl", [told])
    write(tmp_path)
    (entry,) = read_index(tmp_path)["episodes"]
    assert entry["infra_error"] == hostile and entry["reward"] is None
    (detail,) = read_chunk(tmp_path, "eval", 0)
    assert detail["steps"][0]["response"] == hostile
    assert detail["steps"][0]["action"] == f"Not executed: {hostile}"


def test_broken_log_is_named(tmp_path: Path) -> None:
    log = tmp_path / "episodes" / "update-00001.jsonl"
    episode_log.append_episodes(log, training(1))
    log.write_bytes(b"{oops\n" + log.read_bytes())
    with pytest.raises(ValueError, match="line 1"):
        write(tmp_path)


# --- one episode ----------------------------------------------------------------------------------


def solved(with_pictures: bool = False) -> types.Episode:
    return episode("miniwob/login-user/1", solved=True, with_pictures=with_pictures)


def test_step_says_what_was_seen_done_and_answered() -> None:
    first, _, last = trajectories.detail(solved(), NO_TEXT)["steps"]
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


def test_entry_grades_turns_and_counts() -> None:
    assert trajectories.entry(solved())["trace"] == "..."
    failed = episode("miniwob/login-user/1", solved=False, with_pictures=False)
    refused = dataclasses.replace(failed.turns[1].observation, error="no such element")
    turns = (failed.turns[0], dataclasses.replace(failed.turns[1], observation=refused))
    entry = trajectories.entry(dataclasses.replace(failed, turns=turns))
    assert entry["trace"] == "ex" and entry["tokens"] == 25 and entry["reward"] == 0.0
    assert entry["logp"] == pytest.approx(-1.0)


def test_what_is_not_finite_is_unknown() -> None:
    logp = np.array([-np.inf, np.nan, -0.5], np.float32)
    episode = solved()
    turn = dataclasses.replace(
        episode.turns[0], completion=dataclasses.replace(episode.turns[0].completion, logp=logp)
    )
    told = dataclasses.replace(episode, turns=(turn,))
    assert trajectories.detail(told, NO_TEXT)["steps"][0]["logp"] == [None, None, -0.5]
    assert trajectories.entry(told)["logp"] == -0.5


def test_episode_without_turns() -> None:
    lost = dataclasses.replace(solved(), turns=(), reward=None, outcome=types.Outcome.INFRA)
    assert trajectories.detail(lost, NO_TEXT) == {"steps": [], "last": None}
    assert trajectories.entry(lost)["logp"] is None


def test_picture_is_cut_to_its_content_and_marked() -> None:
    shot = trajectories.detail(solved(with_pictures=True), NO_TEXT)["steps"][0]["shot"]
    assert shot["size"] == (640, 400) and shot["mark"] == (20, 60, 210, 32)
    x, y, width, height = shot["crop"]
    assert (x, y) == (4, 4) and 258 < width < 272 and 178 < height < 192


def test_unreadable_picture_costs_the_picture_alone() -> None:
    episode = solved(with_pictures=True)
    turns = tuple(dataclasses.replace(turn, screenshot=b"no JPEG") for turn in episode.turns)
    detail = trajectories.detail(dataclasses.replace(episode, turns=turns), NO_TEXT)
    assert detail["steps"][0]["shot"] is None and detail["last"] is not None


def test_long_answers_are_cut() -> None:
    episode = solved()
    lines = "\n".join(f"line {i}" for i in range(100))
    after = dataclasses.replace(observation(2, 1), text=lines, url="http://127.0.0.1/next")
    turns = (episode.turns[0], dataclasses.replace(episode.turns[1], observation=after))
    step, _ = trajectories.detail(dataclasses.replace(episode, turns=turns), NO_TEXT)["steps"]
    assert step["page_changes"][0] == ("=", "new URL http://127.0.0.1/next")
    assert len(step["page_changes"]) == 42 and re.fullmatch(
        r"and \d+ more .*", step["page_changes"][-1][1]
    )


# --- tokens as text -------------------------------------------------------------------------------


def test_prompts_are_told_whole_by_what_they_add(tmp_path: Path) -> None:
    text = token_text.TokenDecoder(policy.resolve_dir("webagent-tiny"))
    tokenizer = ChatTokenizer(policy.resolve_dir("webagent-tiny"))
    ids = [tokenizer.encode(words) for words in ("a 😀 button", "a 😀 button Ok", "a link")]
    episode = solved()
    turns = tuple(
        dataclasses.replace(turn, prompt_ids=prompt)
        for turn, prompt in zip(episode.turns, ids, strict=True)
    )
    steps = trajectories.detail(dataclasses.replace(episode, turns=turns), text)["steps"]
    before, told = b"", []
    for step in steps:
        kept, rest = step["prompt"]
        before = before[: 2 * kept] + rest.encode("utf-16-le")  # JavaScript counts UTF-16 units
        told.append(before.decode("utf-16-le"))
    assert told == [text.text(prompt) for prompt in ids]
    assert steps[1]["prompt"][1] == " Ok"


def test_pieces_of_a_reply_are_its_text(tmp_path: Path) -> None:
    atomic_files.write_json(
        tmp_path / "config.json", {"config": {"policy": {"path": "webagent-tiny"}}}
    )
    found = token_text.directory(tmp_path)
    assert found is not None
    ids = ChatTokenizer(found).encode_response('do(action="Click", element="7")')
    told = token_text.TokenDecoder(found).pieces(ids)
    assert told is not None and "".join(told) == 'do(action="Click", element="7")'
    assert told[-1] == ""


def test_without_a_tokenizer_nothing_is_told(tmp_path: Path) -> None:
    assert token_text.directory(tmp_path) is None
    assert token_text.directory(tmp_path / "nowhere") is None
    (tmp_path / "tokenizer.json").write_text("no tokenizer")
    assert token_text.TokenDecoder(tmp_path).pieces(np.array([1], np.int32)) is None
