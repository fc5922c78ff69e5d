"""Tests of WebArena-Verified as labels: its files, its scorer, and episodes on fake sites.

Tests of the scorer need the package in an environment of its own; see verified_package.py.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.suites.scripted_episodes import Step, run_script
from tests.suites.verified_package import VERIFIED_PYTHON, needs_package
from tests.suites.webarena_sites import FakeSite, make_row
from webagent_jax.browser import BrowserPool
from webagent_jax.config import BrowserConfig, ConfigError, WebArenaConfig
from webagent_jax.suites.matching import LITE, LITE_V2
from webagent_jax.suites.webarena import WebArena, catalog, verified
from webagent_jax.suites.webarena.suite import task_rules
from webagent_jax.tracking import episode_log
from webagent_jax.types import Episode, InfraError, Outcome

DATA = Path(__file__).with_name("data") / "webarena_lite_test.json"

# --- files, without the package -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "task_type", "item_type", "status", "data"),
    [
        ("Quest Band", "RETRIEVE", "string", "SUCCESS", ["Quest Band"]),
        ("The Hobbit, A Carol", "RETRIEVE", "string", "SUCCESS", ["The Hobbit", "A Carol"]),
        ("1,200; 3", "RETRIEVE", "number", "SUCCESS", ["1,200", "3"]),
        ("a\n b ", "RETRIEVE", "string", "SUCCESS", ["a", "b"]),
        # Only the strongest separator splits: line ends, then semicolons.
        ("He left, and she wept!; b, c", "RETRIEVE", "string", "SUCCESS",
         ["He left, and she wept!", "b, c"]),
        ("a; b, c\nd", "RETRIEVE", "string", "SUCCESS", ["a; b, c", "d"]),
        # It may follow the last item, and weaker ones may end a line.
        ("a, b;", "RETRIEVE", "string", "SUCCESS", ["a", "b"]),
        ("a ; b;", "RETRIEVE", "string", "SUCCESS", ["a", "b"]),
        ("a;\nb, c,\nd", "RETRIEVE", "string", "SUCCESS", ["a", "b, c", "d"]),
        ("March 2, 2022", "RETRIEVE", "date", "SUCCESS", ["March 2, 2022"]),
        ("40.44, -79.99", "RETRIEVE", "coordinates", "SUCCESS", ["40.44, -79.99"]),
        ('["a, b", "c"]', "RETRIEVE", "string", "SUCCESS", ["a, b", "c"]),
        ('{"min": 1}', "RETRIEVE", "object", "SUCCESS", [{"min": 1}]),
        ("", "RETRIEVE", "string", "SUCCESS", []),
        ("[" * 99_999, "RETRIEVE", "string", "SUCCESS", ["[" * 99_999]),
        (r'["\ud83d"]', "RETRIEVE", "string", "SUCCESS", ["\ufffd"]),
        ("000170", "RETRIEVE", "string", "SUCCESS", ["000170"]),
        ("done", "MUTATE", "", "SUCCESS", None),
        ("", "NAVIGATE", "", "SUCCESS", None),
        ("N/A", "RETRIEVE", "string", "NOT_FOUND_ERROR", None),
        ("n/a, no such forum", "NAVIGATE", "", "NOT_FOUND_ERROR", None),
        ("N/A", "MUTATE", "", "ACTION_NOT_ALLOWED_ERROR", None),
        ("PERMISSION_DENIED_ERROR: not mine", "MUTATE", "", "PERMISSION_DENIED_ERROR", None),
        (None, "MUTATE", "", "UNKNOWN_ERROR", None),
    ],
)  # fmt: skip
def test_agent_response_follows_rules(
    answer: str | None, task_type: str, item_type: str, status: str, data: Any
) -> None:
    response = verified.agent_response(answer, task_type, item_type)
    # Exactly the fields of the package's schema.
    assert list(response) == ["task_type", "status", "retrieved_data", "error_details"]
    assert (response["task_type"], response["status"]) == (task_type, status)
    assert response["retrieved_data"] == data
    assert (response["error_details"] is None) == (status == "SUCCESS")


def test_code_block_in_a_string_is_text() -> None:
    answer = '["run ```git pull``` first", "b"]'
    data = verified.agent_response(answer, "RETRIEVE", "string")["retrieved_data"]
    assert data == ["run ```git pull``` first", "b"]


# Forms of a response that the package accepts.
OWN_FORMATS = ("{}", "```json\n{}\n```", "```\n{}\n```", "Done:\n```json\n{}\n``` as asked")


@pytest.mark.parametrize("form", OWN_FORMATS)
@pytest.mark.parametrize("type_key", ["task_type", "performed_operation"])
def test_agent_response_of_an_agent_that_knows_the_format_is_unchanged(
    type_key: str, form: str
) -> None:
    own = {type_key: "NAVIGATE", "status": "SUCCESS", "retrieved_data": None}
    message = form.replace("{}", json.dumps(own))
    assert verified.agent_response(message, "RETRIEVE", "string") == own


def test_agent_response_reads_items_in_code_block() -> None:
    response = verified.agent_response('```json\n["a, b", "c"]\n```', "RETRIEVE", "string")
    assert response["retrieved_data"] == ["a, b", "c"]


def test_har_file_has_required_fields() -> None:
    entry = {"request": {"url": "http://x/"}, "response": {"status": 200}}
    log = json.loads(verified.har_file([entry]))["log"]
    assert log["version"] == "1.2" and log["creator"].keys() == {"name", "version"}
    assert verified.har_entries(verified.har_file([entry])) == [entry]


def test_lite_ids_are_those_of_published_file() -> None:
    rows = json.loads(DATA.read_bytes())
    assert [row["task_id"] for row in rows] == list(range(165))
    assert tuple(row["old_task_id"] for row in rows) == verified.LITE_TASK_IDS


def test_task_of_dataset_does_not_contain_expected_answer() -> None:
    row = {
        "task_id": 5,
        "intent_template_id": 41,
        "sites": ["gitlab", "reddit"],
        "intent": "Get the number on __GITLAB__/x",
        "start_urls": ["__GITLAB__/x", "__REDDIT__"],
        "eval": [
            {
                "evaluator": "AgentResponseEvaluator",
                "results_schema": {"type": "array", "items": {"type": "string", "format": "date"}},
                "expected": {"task_type": "retrieve", "status": "SUCCESS", "retrieved_data": ["?"]},
            }
        ],
    }
    task = verified.make_task(row, "./.auth/gitlab.reddit_state.json")
    assert task.id == "webarena/verified/5" and task.template == "41"
    assert task.sites == ("gitlab", "reddit")
    assert task.intent == "Get the number on http://gitlab.invalid/x"
    assert task.start_url == "http://gitlab.invalid/x |AND| http://reddit.invalid"
    assert dict(task.eval) == {
        "eval_types": ["verified"],
        "webarena_id": 5,
        "task_type": "RETRIEVE",
        "item_type": "date",
    }
    assert catalog.modified_sites(task) == ()
    row["eval"][0]["expected"]["task_type"] = "mutate"
    assert catalog.modified_sites(verified.make_task(row)) == ("gitlab", "reddit")


@pytest.mark.parametrize("python", ["", "/nowhere/python", "sh"])
def test_missing_package_error_has_both_commands(
    python: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if python != "sh":
        monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError) as error:
        catalog.read(WebArenaConfig(labels="verified", verified_python=python))
    lines = str(error.value).splitlines()
    assert len(lines) == 2
    assert "python -m venv" in lines[0] and "pip install webarena-verified==1.2.3" in lines[0]
    assert "suite.webarena.verified_python=" in lines[1]


def test_scorer_that_ends_is_infra_error(tmp_path: Path) -> None:
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho broken >&2\nexit 3\n")
    program.chmod(0o755)
    request = verified.ScoreRequest(1, {"gitlab": "http://x"}, {}, [])
    with pytest.raises(InfraError, match="broken"):
        verified.score(str(program), [request])


def test_lite_v2_needs_file() -> None:
    with pytest.raises(ConfigError, match=r"suite\.webarena\.lite_v2_file"):
        catalog.read(WebArenaConfig(labels="lite-v2"))


def test_lite_v2_tasks_have_ids_of_their_own(tmp_path: Path) -> None:
    # The file has other numbers than WebArena-Lite, and a comparison that WebArena-Lite lacks.
    row = make_row(26, "gitlab", reference_answers={"must_include": ["a"], "must_exclude": ["b"]})
    (tmp_path / "v2.json").write_text(json.dumps([row | {"old_task_id": 115}]))
    config = WebArenaConfig(labels="lite-v2", lite_v2_file=str(tmp_path / "v2.json"))
    task = catalog.read(config).task("26", "test")
    assert task.id == "webarena/lite-v2/26" and task.eval["webarena_id"] == 115
    assert task_rules(config, task) == LITE_V2
    # Training tasks keep the original labels, and their rules.
    assert task_rules(config, replace(task, id="webarena/train/26")) == LITE


# --- the package ----------------------------------------------------------------------------------


def package_config(**options: Any) -> WebArenaConfig:
    return WebArenaConfig(labels="verified", verified_python=VERIFIED_PYTHON, **options)


@needs_package
@pytest.mark.parametrize(
    ("split", "size", "note"),
    [
        ("verified", 812, "3 tasks (699, 700, 811) cannot be passed, and 10 tasks"),
        ("hard", 258, ""),
        ("lite-verified", 165, "1 tasks (811) cannot be passed, and 1 tasks (762) reward"),
    ],
)
def test_splits_have_published_sizes(split: Any, size: int, note: str) -> None:
    tasks = catalog.read(package_config(verified_split=split))
    assert len(tasks.names("test")) == size
    assert note in " ".join(tasks.notes) and bool(tasks.notes) == bool(note)


@needs_package
def test_package_is_found_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(Path(VERIFIED_PYTHON).parent))
    assert verified.find_installation("").version == "1.2.3"


def start_page_entry(url: str) -> dict[str, Any]:
    headers = {"accept": "text/html", "sec-fetch-dest": "document", "sec-fetch-mode": "navigate"}
    return {
        "request": {
            "method": "GET",
            "url": url,
            "headers": [{"name": k, "value": v} for k, v in headers.items()],
        },
        "response": {"status": 200, "redirectURL": "", "headers": [], "cookies": [], "content": {}},
    }


@needs_package
def test_package_scores_own_formats_of_response() -> None:
    requests = []
    for form in OWN_FORMATS:
        for type_key in ("task_type", "performed_operation"):
            own = {type_key: "RETRIEVE", "status": "SUCCESS", "retrieved_data": [1]}
            message = form.replace("{}", json.dumps(own))
            response = verified.agent_response(message, "RETRIEVE", "number")
            requests.append(verified.ScoreRequest(205, {"gitlab": "http://x"}, response, None))
    assert [verdict.score for verdict in verified.score(VERIFIED_PYTHON, requests)] == [1.0] * 8


@needs_package
@pytest.mark.slow
def test_tasks_that_pay_for_nothing_or_never_pay_are_listed() -> None:
    tasks = catalog.read(package_config())
    requests = []
    for name in tasks.names("test"):
        task = tasks.task(name, "test")
        spec = task.eval
        addresses = {site: f"http://{site}.invalid" for site in task.sites}
        response = verified.agent_response("", spec["task_type"], spec["item_type"])
        entries = [start_page_entry(url) for url in task.start_url.split(" |AND| ")]
        requests.append(verified.ScoreRequest(int(name), addresses, response, entries))
    verdicts = verified.score(VERIFIED_PYTHON, requests)
    paid = [r.webarena_id for r, v in zip(requests, verdicts, strict=True) if v.score == 1]
    broken = [v.result["task_id"] for v in verdicts if v.result["status"] == "error"]
    assert tuple(paid) == verified.FREE_TASKS
    assert tuple(broken) == verified.IMPOSSIBLE_TASKS


# --- episodes on fake sites -----------------------------------------------------------------------

MILESTONE = "/primer/design/-/milestones"
GITLAB_HOME = "<h1>GitLab</h1><a href='/dashboard/todos'>To-Do List</a>"
STAR = (
    "<button onclick=\"fetch('/umano/AndroidSlidingUpPanel/toggle_star.json', {method: 'POST'})\">"
    "Star</button>"
)
MILESTONE_FORM = f"""<form action={MILESTONE} method=post>
<input name="milestone[title]" aria-label=Title>
<input name="milestone[start_date]" value="2023-01-16" aria-label=Start>
<input name="milestone[due_date]" value="2023-01-30" aria-label=Due>
<button>Create</button></form>"""
WISH_FORM = """<form action=/wishlist/index/add/ method=post>
<input type=hidden name=product value=3><button>Add to Wish List</button></form>"""


@pytest.fixture(scope="module")
def pool() -> Iterator[BrowserPool]:
    with BrowserPool(BrowserConfig(call_timeout=60.0, navigation_timeout=60.0)) as browser_pool:
        yield browser_pool


@pytest.fixture
def environ() -> Iterator[Mapping[str, str]]:
    """Addresses of fake sites with the pages that the tasks below need."""
    message = quote(json.dumps([{"text": "laundry detergent has been added to your wish list."}]))
    gitlab = FakeSite(
        "gitlab",
        pages={
            "/": GITLAB_HOME + STAR,
            "/dashboard/todos": "<h1>Todos</h1><a href=/>Home</a>",
            "/primer/design": MILESTONE_FORM,
            "/a11yproject/a11yproject.com": "<p>1 commit</p>",
        },
        posts={
            MILESTONE: (302, {"Location": f"{MILESTONE}/1"}, ""),
            "/umano/AndroidSlidingUpPanel/toggle_star.json": (
                200,
                {"Content-Type": "application/json"},
                '{"star_count": 56}',
            ),
        },
    )
    shop = FakeSite(
        "shopping",
        host="127.0.0.2",
        pages={"/": WISH_FORM},
        posts={
            "/wishlist/index/add/": (
                302,
                {"Location": "/about", "Set-Cookie": f"mage-messages={message}; path=/"},
                "",
            )
        },
    )
    reddit = FakeSite("reddit", host="127.0.0.3")
    yield {"GITLAB": gitlab.address, "SHOPPING": shop.address, "REDDIT": reddit.address}
    for site in (gitlab, shop, reddit):
        site.close()


def run_task(
    pool: BrowserPool, environ: Mapping[str, str], folder: Path, name: str, *steps: Step
) -> Episode:
    config = package_config(auth_dir=str(folder / "states"))
    suite = WebArena(pool, config, [name], environ=environ)
    try:
        return run_script(suite, suite.task(name, "test", 0), *steps)
    finally:
        suite.close()


FILL_TITLE = ("Type", "Title", "product launch")
POST = {
    "username": "Hammer94",
    "post_title": ("56 year old mom has no retirement. Where do I even start on her behalf?"),
    "count": 0,
}


@needs_package
@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize(
    ("name", "steps", "reward"),
    [
        # Retrieve: a number, a list of texts, an object, and data that does not exist.
        ("205", [("exit", "1")], 1),
        ("205", [("exit", "2")], 0),
        ("205", [("exit", "")], 0),
        ("67", [("exit", "The Hobbit, A Christmas Carol")], 1),
        ("67", [("exit", "The Hobbit")], 0),
        ("27", [("exit", json.dumps([POST]))], 1),
        ("27", [("exit", "Hammer94")], 0),
        ("168", [("exit", "N/A")], 1),
        ("168", [("exit", "12")], 0),
        # Navigate.
        ("44", [("Click", "To-Do List"), ("exit", "")], 1),
        ("44", [("exit", "")], 0),
        ("44", [("Click", "To-Do List"), ("Click", "Home"), ("exit", "")], 0),
        ("44", [("Click", "To-Do List")], 0),  # without a response
        ("44", [("Click", "To-Do List"), ("exit", "N/A")], 0),
        # Mutate: form data, the content of a response, and a cookie of a response.
        ("590", [FILL_TITLE, ("Click", "Create"), ("exit", "done")], 1),
        ("590", [("Click", "Create"), ("exit", "done")], 0),
        ("590", [FILL_TITLE, ("exit", "done")], 0),
        ("527", [("Click", "Star"), ("exit", "")], 1),
        ("527", [("exit", "")], 0),
        ("511", [("Click", "Add to Wish List"), ("exit", "")], 1),
        ("511", [("exit", "")], 0),
    ],
)  # fmt: skip
def test_package_scores_episode(
    pool: BrowserPool,
    environ: Mapping[str, str],
    tmp_path: Path,
    name: str,
    steps: list[Step],
    reward: float,
) -> None:
    episode = run_task(pool, environ, tmp_path, name, *steps)
    assert episode.reward == reward, episode.files[verified.RESULT_FILE].decode()


@needs_package
@pytest.mark.slow
@pytest.mark.browser
def test_command_of_package_reads_stored_files(
    pool: BrowserPool, environ: Mapping[str, str], tmp_path: Path
) -> None:
    episode = run_task(pool, environ, tmp_path, "44", ("Click", "To-Do List"), ("exit", ""))
    assert episode.outcome is Outcome.SUCCESS
    episode_log.append_episodes(tmp_path / "episodes.jsonl", [episode])
    folder = tmp_path / "files" / "0" / "webarena" / "verified"
    # The package reads the addresses of the sites from run_config.json.
    arguments = ["eval-tasks", "--output-dir", str(folder)]
    (folder / "44" / verified.RESULT_FILE).unlink()
    subprocess.run(
        [VERIFIED_PYTHON, "-m", "webarena_verified", *arguments], check=True, capture_output=True
    )
    assert json.loads((folder / "44" / "eval_result.json").read_bytes())["score"] == 1.0
