"""Tests of rescoring: verdicts of stored episodes under other label sets, and their table."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from absl import flags

from tests.chat_server import ChatServer, Reply, serve_chat
from tests.launchers import load_main
from tests.suites.scripted_episodes import run_script
from tests.suites.verified_package import VERIFIED_PYTHON, needs_package
from tests.suites.webarena_sites import FakeSite, make_row, page_target
from webagent_jax import rescore
from webagent_jax.browser import BrowserPool
from webagent_jax.config import (
    BrowserConfig,
    ConfigError,
    JudgeConfig,
    RunConfig,
    SuiteConfig,
    WebArenaConfig,
)
from webagent_jax.suites.webarena import WebArena, catalog, verified
from webagent_jax.tracking import episode_log, run_metadata
from webagent_jax.types import Episode, InfraError, Outcome

Json = dict[str, Any]


def write_file(path: Path, rows: Sequence[Json]) -> str:
    path.write_text(json.dumps(rows))
    return str(path)


def write_run(folder: Path, episodes: Sequence[Episode], **options: Any) -> Path:
    """Write the workdir of an evaluation with these episodes."""
    suite = SuiteConfig(name="webarena_lite", webarena=WebArenaConfig(**options))
    run_metadata.init_workdir(folder, RunConfig(suite=suite), "evaluate")
    episode_log.append_episodes(folder / "episodes" / "episodes.jsonl", episodes)
    return folder


def make_episode(
    file: str, name: str, answer: str | None, reward: float, final_url: str = "", **options: Any
) -> Episode:
    """Return an episode of a task file; with a final address it has the file that stores it."""
    task = catalog.read(WebArenaConfig(test_file=file, **options)).task(name, "test")
    addresses = {site: f"http://{site}.example" for site in task.sites}
    files = {verified.SITES_FILE: verified.sites_file(addresses, final_url)} if final_url else {}
    outcome = Outcome.SUCCESS if reward else Outcome.FAILURE
    return Episode(task, task.intent, (), reward, outcome, answer, files=files)


def numbered(row: Json, old: int) -> Json:
    return row | {"old_task_id": old}


def rescored(run: Path, labels: str, **overrides: str) -> list[tuple[float | None, str]]:
    result = rescore.rescore(run, [labels], overrides)
    return list(zip(result.rewards[labels], result.reasons[labels], strict=True))


def test_labels_correspond_by_number_in_webarena(tmp_path: Path) -> None:
    answer: Json = {"must_include": ["170"]}
    corrected: Json = {"must_include": ["189"], "must_exclude": ["170"]}
    file = write_file(
        tmp_path / "lite.json",
        [
            numbered(make_row(0, "gitlab", reference_answers=answer), 500),
            numbered(make_row(1, "gitlab", reference_answers=answer), 501),
            numbered(make_row(2, "gitlab", reference_answers=answer), 502),
            numbered(make_row(3, "gitlab", reference_answers=answer), 503),
        ],
    )
    # Other numbers than in the first file; one task has another site, and one is missing.
    v2_file = write_file(
        tmp_path / "v2.json",
        [
            numbered(make_row(0, "reddit", reference_answers=answer), 502),
            numbered(make_row(1, "gitlab", reference_answers=corrected), 501),
            numbered(make_row(2, "gitlab", reference_answers=answer), 500) | {"intent": "New"},
        ],
    )
    episodes = [
        make_episode(file, "0", "It is 170", 1.0),
        make_episode(file, "1", "It is 170", 1.0),
        make_episode(file, "2", "It is 170", 1.0),
        make_episode(file, "3", "It is 170", 1.0),
    ]
    run = write_run(tmp_path / "run", episodes, test_file=file, lite_v2_file=v2_file)
    result = rescore.rescore(run, ["lite-v2"])
    assert list(result.rewards) == ["original", "lite-v2"]
    assert result.rewards["lite-v2"] == [1.0, 0.0, None, None]
    assert result.reasons["lite-v2"][2] == "not in the label set"
    assert result.num_reworded["lite-v2"] == 1
    table = " ".join(rescore.report(result).split())
    # All four episodes by their own labels, the two common ones by both.
    assert "original 100.0 51.0 to 100.0 4 0 0 100.0 34.2 to 100.0 2 " in table
    assert "lite-v2 50.0 9.5 to 90.5 2 2 1 50.0 9.5 to 90.5 2 " in table
    assert "1 of 2 common episodes have different verdicts" in table
    assert table.endswith("episode original lite-v2 webarena/test/1 1 0")
    record = rescore.to_json(result)
    assert record["labels"]["lite-v2"]["all"]["success_rate"] == 0.5
    assert record["labels"]["original"]["common"]["n"] == 2
    assert record["episodes"][1]["rewards"] == {"original": 1.0, "lite-v2": 0.0}
    assert record["episodes"][3]["missing"] == {"lite-v2": "not in the label set"}


@pytest.mark.parametrize(
    ("attempted", "label", "is_same"),
    [(303, 303, True), (7, 303, False), (None, 303, True), (303, None, True), (None, None, True)],
)
def test_labels_need_the_same_template(
    tmp_path: Path, attempted: int | None, label: int | None, is_same: bool
) -> None:
    row = make_row(44, "gitlab", reference_answers={"must_include": ["1"]})
    file, labels = (
        write_file(tmp_path / f"{name}.json", [row | {"intent_template_id": template}])
        for name, template in (("own", attempted), ("webarena", label))
    )
    run = write_run(tmp_path / "run", [make_episode(file, "44", "1", 1.0)], labels="lite-v2")
    expected = (1.0, "") if is_same else (None, "not in the label set")
    assert rescored(run, "original", test_file=labels) == [expected]


def test_matching_rules_of_labels_can_be_set(tmp_path: Path) -> None:
    row = make_row(0, "gitlab", reference_answers={"must_include": ["25"]})
    file = write_file(tmp_path / "tasks.json", [row])
    # WebArena-Lite compares words, WebArena parts of the text.
    run = write_run(tmp_path / "run", [make_episode(file, "0", "It is 1255", 0.0)])
    assert rescored(run, "original", test_file=file, matching_rules="lite") == [(0.0, "")]
    assert rescored(run, "original", test_file=file, matching_rules="webarena") == [(1.0, "")]
    with pytest.raises(ConfigError, match=r"matching_rules='exact' is not one of: lite, webarena"):
        rescore.rescore(run, ["original"], {"matching_rules": "exact"})


def test_command_has_option_of_matching_rules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = make_row(0, "gitlab", reference_answers={"must_include": ["25"]})
    file = write_file(tmp_path / "tasks.json", [row])
    episodes = [make_episode(file, "0", "It is 1255", 0.0)]
    run = write_run(tmp_path / "run", episodes, test_file=file)
    main = load_main("rescore")
    monkeypatch.setattr(flags.FLAGS["labels"], "value", ["original"])
    monkeypatch.setattr(flags.FLAGS["matching_rules"], "value", "webarena")
    main(["rescore", str(run)])
    record = json.loads((run / "rescore.json").read_bytes())
    assert record["episodes"][0]["rewards"] == {"original of the run": 0.0, "original": 1.0}


def test_labels_have_the_text_comparison_of_their_harness(tmp_path: Path) -> None:
    row = numbered(make_row(0, "gitlab", reference_answers={"must_include": ["25"]}), 500)
    file, v2_file = (write_file(tmp_path / name, [row]) for name in ("lite.json", "v2.json"))
    run = write_run(
        tmp_path / "run",
        [make_episode(file, "0", "It is 1255", 0.0)],
        test_file=file,
        lite_v2_file=v2_file,
    )
    # WebArena-Lite compares words, WebArena-Lite-v2 parts of the text.
    assert rescore.rescore(run, ["lite-v2"]).rewards == {"original": [0.0], "lite-v2": [1.0]}


def test_labels_of_sites_in_the_config_are_scored(tmp_path: Path) -> None:
    rows = [
        make_row(0, "crm", reference_answers={"must_include": [text]}) for text in ("170", "189")
    ]
    file, fixed = (write_file(tmp_path / f"{n}.json", [row]) for n, row in enumerate(rows))
    options = {"addresses": ("crm=http://localhost:3000",)}
    episode = make_episode(file, "0", "It is 170", 1.0, **options)
    run = write_run(tmp_path / "run", [episode], test_file=file, **options)
    assert rescored(run, "original", test_file=fixed) == [(0.0, "")]


def test_labels_of_the_run_are_scored_again_with_another_file(tmp_path: Path) -> None:
    rows = [
        numbered(make_row(0, "gitlab", reference_answers={"must_include": [text]}), 500)
        for text in ("170", "189")
    ]
    file, fixed = (write_file(tmp_path / f"{n}.json", [row]) for n, row in enumerate(rows))
    run = write_run(tmp_path / "run", [make_episode(file, "0", "It is 170", 1.0)], test_file=file)
    result = rescore.rescore(run, ["original"], {"test_file": fixed})
    assert result.rewards == {"original of the run": [1.0], "original": [0.0]}
    assert "1 of 1 common episodes have different verdicts" in rescore.report(result)
    assert rescore.to_json(result)["run_labels"] == "original of the run"
    # Without another file, the rewards of the run are those of the labels.
    for overrides in ({}, {"test_file": file}):
        assert rescore.rescore(run, ["original"], overrides).rewards == {"original": [1.0]}


def test_final_url_is_scored_if_stored(tmp_path: Path) -> None:
    row = make_row(7, "gitlab", reference_url="__GITLAB__/about")
    file = write_file(tmp_path / "tasks.json", [row])
    episodes = [
        make_episode(file, "7", "", 0.0, "http://gitlab.example/about"),
        make_episode(file, "7", "", 0.0, "http://gitlab.example/"),
        make_episode(file, "7", "", 0.0),
    ]
    for index, expected in enumerate([(1.0, ""), (0.0, ""), (None, "no final address")]):
        run = write_run(tmp_path / str(index), [episodes[index]], labels="lite-v2")
        assert rescored(run, "original", test_file=file) == [expected]


def test_unknown_parts_leave_no_reward_unless_another_fails(tmp_path: Path) -> None:
    page = [page_target("last", "milk")]
    file = write_file(
        tmp_path / "tasks.json",
        [
            make_row(0, "gitlab", reference_answers={"exact_match": "1"}, program_html=page),
            make_row(1, "gitlab", program_html=page, reference_answers={"exact_match": "1"}),
            make_row(2, "gitlab", reference_answers={"exact_match": "1"}),
        ],
    )
    fuzzy = make_row(2, "gitlab", reference_answers={"fuzzy_match": ["one"]})
    judged = write_file(tmp_path / "judged.json", [fuzzy])
    cases = [
        (file, "0", "1", (None, "page contents")),
        (file, "0", "2", (0.0, "")),
        (file, "1", "2", (0.0, "")),
        (judged, "2", "1", (None, "no judge")),
        (file, "2", None, (0.0, "")),
    ]
    for index, (labels, name, answer, expected) in enumerate(cases):
        episode = make_episode(file, name, answer, 1.0)
        run = write_run(tmp_path / f"run{index}", [episode], labels="lite-v2")
        assert rescored(run, "original", test_file=labels) == [expected]


@pytest.fixture
def judge_endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatServer]:
    with serve_chat(monkeypatch, '{"verdict": "correct"}') as server:
        yield server


def write_judged_run(tmp_path: Path, endpoint: ChatServer, *answers: str) -> tuple[Path, str]:
    """Write a run with one episode per answer, and a file with fuzzy labels of its tasks."""
    rows = [
        make_row(i, "gitlab", reference_answers={"exact_match": "1"}) for i in range(len(answers))
    ]
    file = write_file(tmp_path / "tasks.json", rows)
    fuzzy = [
        make_row(i, "gitlab", reference_answers={"fuzzy_match": ["one"]})
        for i in range(len(answers))
    ]
    episodes = [make_episode(file, str(i), answer, 0.0) for i, answer in enumerate(answers)]
    judge = JudgeConfig(url=endpoint.url, model="tiny")
    run = write_run(tmp_path / "run", episodes, labels="lite-v2", judge=judge)
    return run, write_file(tmp_path / "judged.json", fuzzy)


@pytest.mark.parametrize("status", [401, 404])
def test_wrong_judge_option_ends_rescore(
    tmp_path: Path, judge_endpoint: ChatServer, status: int
) -> None:
    judge_endpoint.replies = [status]
    run, file = write_judged_run(tmp_path, judge_endpoint, "1")
    with pytest.raises(ConfigError, match=r"check suite\.webarena\.judge\.url, model and api_key"):
        rescored(run, "original", test_file=file)


def test_episode_with_failed_judge_is_not_scored(
    tmp_path: Path, judge_endpoint: ChatServer
) -> None:
    def answer(body: Json) -> Reply:
        return 400 if "a fault" in str(body) else '{"verdict": "correct"}'

    judge_endpoint.answer = answer
    run, file = write_judged_run(tmp_path, judge_endpoint, "1", "a fault", "one")
    first, fault, last = rescored(run, "original", test_file=file)
    assert first == last == (1.0, "")
    assert fault[0] is None and fault[1].startswith("judge failed: the judge at http")


def test_judge_that_does_not_answer_ends_rescore(
    tmp_path: Path, judge_endpoint: ChatServer
) -> None:
    judge_endpoint.answer = lambda body: 400
    run, file = write_judged_run(tmp_path, judge_endpoint, "1", "one")
    with pytest.raises(InfraError, match="the judge at http"):
        rescored(run, "original", test_file=file)
    assert len(judge_endpoint.requests) == 2


def test_user_errors_name_the_fix(tmp_path: Path) -> None:
    file = write_file(tmp_path / "t.json", [make_row(0, "gitlab", reference_url="__GITLAB__/")])
    run = write_run(tmp_path / "run", [make_episode(file, "0", "", 1.0)], test_file=file)
    with pytest.raises(ConfigError, match="must list some of: original, verified, lite-v2"):
        rescore.rescore(run, ["webarena"])
    with pytest.raises(ConfigError, match=r"suite\.webarena\.lite_v2_file"):
        rescore.rescore(run, ["lite-v2"])
    with pytest.raises(ConfigError, match="pass the --workdir"):
        rescore.rescore(tmp_path, ["verified"])
    other_run = write_run(tmp_path / "other", [make_episode(file, "0", "", 1.0)], labels="lite-v2")
    with pytest.raises(ConfigError, match="--test_file"):
        rescore.rescore(other_run, ["original"])
    run_metadata.init_workdir(tmp_path / "miniwob", RunConfig(), "evaluate")
    with pytest.raises(ConfigError, match="run of miniwob"):
        rescore.rescore(tmp_path / "miniwob", ["verified"])
    with pytest.raises(ConfigError, match="workdir of one evaluation"):
        load_main("rescore")(["rescore"])


# --- with the package -----------------------------------------------------------------------------


@pytest.fixture
def gitlab() -> Iterator[FakeSite]:
    pages = {
        "/": "<a href=/dashboard/todos>To-Do List</a>",
        "/dashboard/todos": "<h1>Todos</h1>",
        "/a11yproject/a11yproject.com": "<p>1 commit</p>",
    }
    site = FakeSite("gitlab", pages=pages)
    yield site
    site.close()


@needs_package
@pytest.mark.slow
@pytest.mark.browser
def test_stored_episodes_are_scored_by_package(
    gitlab: FakeSite,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Two tasks of WebArena-Lite with its labels: 9 is 44 of WebArena, and 46 is 205.
    todos = "__GITLAB__/dashboard/todos"
    commits = make_row(
        46,
        "gitlab",
        start="__GITLAB__/a11yproject/a11yproject.com",
        reference_answers={"must_include": ["2"]},
    )
    file = write_file(
        tmp_path / "lite.json",
        [numbered(make_row(9, "gitlab", reference_url=todos), 44), numbered(commits, 205)],
    )
    for index, keeps_logs in enumerate([True, False]):
        config = WebArenaConfig(
            test_file=file, auth_dir=str(tmp_path / "states"), keep_network_logs=keeps_logs
        )
        with BrowserPool(BrowserConfig(call_timeout=60.0, navigation_timeout=60.0)) as pool:
            suite = WebArena(pool, config, environ={"GITLAB": gitlab.address})
            click = ("Click", "To-Do List")
            episodes = [
                run_script(suite, suite.task("9", "test", 0), click, ("exit", "")),
                run_script(suite, suite.task("46", "test", 0), ("exit", "1")),
            ]
            suite.close()
        assert [episode.reward for episode in episodes] == [1.0, 0.0]
        run = write_run(tmp_path / str(index), episodes, test_file=file)
        main = load_main("rescore")
        monkeypatch.setattr(flags.FLAGS["verified_python"], "value", VERIFIED_PYTHON)
        main(["rescore", str(run)])
        record = json.loads((run / "rescore.json").read_bytes())
        rewards = [episode["rewards"]["verified"] for episode in record["episodes"]]
        # The answer needs no network log; the page that the agent opened does.
        assert rewards == ([1.0, 1.0] if keeps_logs else [None, 1.0])
        output = " ".join(capsys.readouterr().out.split())
        assert "webarena/test/46 0 1" in output
        assert ("1 no network log" in output) == (not keeps_logs)
