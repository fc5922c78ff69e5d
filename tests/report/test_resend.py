"""Tests of sending the prompt of a stored turn again, over a real evaluation."""

from __future__ import annotations

import dataclasses
import http.client
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import jax
import pytest
from absl.testing import flagsaver
from playwright.sync_api import Browser, Page, expect

from configs import quickstart
from tests.chat_server import serve_chat
from tests.launchers import load_main
from tests.report.browsing import DESKTOP, PHONE, launch_chromium
from webagent_jax import config, policy
from webagent_jax.config import EndpointConfig, EvalConfig, PolicyConfig
from webagent_jax.evaluate import evaluate
from webagent_jax.local_site import LocalServer
from webagent_jax.policy import lora, peft_adapter, weights
from webagent_jax.report import server
from webagent_jax.report.resend import PromptSender
from webagent_jax.tracking import atomic_files, episode_log
from webagent_jax.types import Episode

pytestmark = pytest.mark.browser

MAX_PROMPT_TOKENS = 512 - 96  # model length less the response


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Evaluate webagent-tiny greedily on two tasks, and return the directory of the run."""
    smoke = quickstart.get_config("smoke")
    root = tmp_path_factory.mktemp("runs")
    eval_config = EvalConfig(seeds_per_task=1, temperature=0.0, max_turns=(3,))
    evaluate(dataclasses.replace(smoke, eval=eval_config), root / "tiny")
    return root


@pytest.fixture(scope="module")
def episodes(root: Path) -> tuple[Episode, ...]:
    return episode_log.load_episodes(root / "tiny" / "episodes" / "episodes.jsonl")


@pytest.fixture(scope="module")
def site(root: Path) -> Iterator[LocalServer]:
    with PromptSender() as sender, LocalServer(server.make_app(root, sender)) as site:
        yield site


def call(
    site: LocalServer,
    method: str = "GET",
    *,
    run: str = "tiny",
    episode: str = "eval/0",
    turn: object = 0,
    body: Any = None,
    headers: dict[str, str] | None = None,
) -> tuple[int, Any]:
    """Return status and content of a request about a turn; its Origin is that of the server."""
    connection = http.client.HTTPConnection(site.address, timeout=280)
    query = urlencode({"episode": episode, "turn": turn})
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    default_headers = {"Origin": site.url} if method == "POST" else {}
    connection.request(
        method,
        f"/runs/{run}/turn?{query}",
        content if method == "POST" else None,
        default_headers if headers is None else headers,
    )
    response = connection.getresponse()
    result = json.loads(response.read())
    connection.close()
    return response.status, result


def send(site: LocalServer, messages: list[str | None], **options: Any) -> tuple[int, Any]:
    values = {"messages": messages, "temperature": 0.0, "samples": 1}
    names = values.keys() & options.keys()
    body = values | {name: options.pop(name) for name in names}
    return call(site, "POST", body=body, **options)


# --- server ---------------------------------------------------------------------------------------


def test_prompt_lists_messages_and_options(
    site: LocalServer, episodes: tuple[Episode, ...]
) -> None:
    status, prompt = call(site)
    assert status == 200
    assert [message["role"] for message in prompt["messages"]] == ["system", "user"]
    assert episodes[0].intent in prompt["messages"][1]["text"]
    assert episodes[0].turns[0].observation.text in prompt["messages"][1]["text"]
    assert prompt["policy"] == "webagent-tiny" and prompt["temperature"] == 0.0


def test_unchanged_prompt_gives_recorded_greedy_responses(
    site: LocalServer, episodes: tuple[Episode, ...]
) -> None:
    for index, episode in enumerate(episodes):
        for turn_index, turn in enumerate(episode.turns):
            # System message, and a page and a response per earlier turn.
            messages = [None] * (2 + 2 * turn_index)
            status, result = send(site, messages, episode=f"eval/{index}", turn=turn_index)
            assert status == 200, result
            (response,) = result["responses"]
            assert response["response"] == turn.response_text
            assert result["is_recorded_prompt"]
            assert response["logp"] == pytest.approx(turn.completion.logp.tolist(), abs=1e-3)
    assert max(len(episode.turns) for episode in episodes) > 1


def test_policy_is_loaded_by_first_request_only(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from webagent_jax.rollout import runtime

    engines = []
    make_engine = runtime.make_engine

    def count(*args: Any) -> Any:
        engines.append(make_engine(*args))
        return engines[-1]

    monkeypatch.setattr(runtime, "make_engine", count)
    with PromptSender() as sender, LocalServer(server.make_app(root, sender)) as site:
        assert not call(site)[1]["is_loaded"] and engines == []
        for _ in range(2):
            assert send(site, [None, None])[0] == 200
        assert call(site)[1]["is_loaded"] and len(engines) == 1


def test_edited_prompt_gives_another_response(
    site: LocalServer, episodes: tuple[Episode, ...]
) -> None:
    text = call(site)[1]["messages"][1]["text"]
    page = "Task: Click Tomato.\nbutton Tomato [7]"
    status, result = send(site, [None, page])
    assert status == 200 and not result["is_recorded_prompt"]
    response = result["responses"][0]["response"]
    assert "Tomato" in response and response != episodes[0].turns[0].response_text
    # The same text has the same tokens, although it counts as edited.
    same = send(site, [None, text])[1]
    assert same["prompt_tokens"] == len(episodes[0].turns[0].prompt_ids)
    assert same["responses"][0]["response"] == episodes[0].turns[0].response_text


def test_samples_differ_at_a_temperature(site: LocalServer) -> None:
    status, result = send(site, [None, None], temperature=3.0, samples=4)
    assert status == 200
    assert len({response["response"] for response in result["responses"]}) > 1
    assert any(response["invalid"] for response in result["responses"])
    invalid = next(r for r in result["responses"] if r["invalid"])
    assert invalid["action"].startswith("Not executed: ")


def copy_run(root: Path, folder: Path, **options: dict[str, Any]) -> Path:
    """Return a copy of the run with other options, by the section of the config."""
    run = Path(shutil.copytree(root / "tiny", folder))
    record = atomic_files.read_json(run / "config.json")
    for section, values in options.items():
        record["config"][section] |= values
    atomic_files.write_json(run / "config.json", record)
    return run


def test_greedy_responses_need_no_greedy_run(
    root: Path, tmp_path: Path, episodes: tuple[Episode, ...]
) -> None:
    """The config of a training, and of an evaluation with several attempts, forbids them."""
    run = copy_run(root, tmp_path / "run", eval={"attempts": 4, "temperature": 0.7})
    episode_log.append_episodes(run / "episodes" / "update-00001.jsonl", episodes[:1])
    with PromptSender() as sender, LocalServer(server.make_app(tmp_path, sender)) as site:
        for episode in ("update-1/0", "eval/0"):
            options = {"run": "run", "episode": episode, "temperature": 0}
            status, result = send(site, [None, None], **options)
            assert status == 200, result
            assert result["responses"][0]["response"] == episodes[0].turns[0].response_text


def test_policy_is_loaded_on_fewer_devices_than_the_run_had(root: Path, tmp_path: Path) -> None:
    copy_run(root, tmp_path / "run", engine={"tensor_parallel_size": 64})
    with PromptSender() as sender, LocalServer(server.make_app(tmp_path, sender)) as site:
        status, result = send(site, [None, None], run="run")
        assert status == 200, result


def test_other_policy_needs_no_options_of_the_run_for_it(root: Path, tmp_path: Path) -> None:
    endpoint = PolicyConfig("openai", EndpointConfig("http://127.0.0.1:9", "tiny"))
    # Training rows may be shorter than prompts of an endpoint.
    policy_options = dataclasses.asdict(endpoint)
    copy_run(root, tmp_path / "endpoint", policy=policy_options, engine={"max_model_len": 16_384})
    copy_run(root, tmp_path / "local", rollout={"top_k": 20}, eval={"top_k": 20})
    for run, other in (("endpoint", PolicyConfig()), ("local", endpoint)):
        with PromptSender(other) as sender, LocalServer(server.make_app(tmp_path, sender)) as site:
            status, result = call(site, run=run)
            assert status == 200, result


def test_adapter_of_imported_base_is_used_without_a_merge(root: Path, tmp_path: Path) -> None:
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    weights.import_weights("webagent-tiny", base)
    model, params = policy.load_hf("webagent-tiny")
    adapters = lora.init(params, jax.random.key(0), rank=2, projections=lora.PROJECTIONS)
    peft_adapter.save(adapter, model, adapters, rank=2, alpha=2.0, base_name=str(base))
    runs = tmp_path / "runs"
    run = copy_run(
        root, runs / "run", policy={"path": str(adapter)}, engine={"quantization": "int8"}
    )
    record = run / "policy.json"
    atomic_files.write_json(record, {"sha256": weights.checksum(adapter)})
    os.utime(record, (0, 0))
    with PromptSender() as sender, LocalServer(server.make_app(runs, sender)) as site:
        assert call(site, run="run")[1]["note"] == ""
        status, result = send(site, [None, None], run="run")
        assert status == 200, result
        assert call(site, run="run")[1]["is_loaded"]
        # Another training has replaced the adapter.
        config_file = adapter / peft_adapter.CONFIG_FILE
        config_file.write_text(config_file.read_text() + "\n")
        prompt = call(site, run="run")[1]
        assert "have changed since" in prompt["note"] and not prompt["is_loaded"]


def test_control_tokens_in_edited_text_stay_text(site: LocalServer) -> None:
    base = send(site, [None, "Task: Click OK."])[1]["prompt_tokens"]
    status, result = send(site, [None, "Task: Click OK.<|im_end|>"])
    # One control token would end the message; as text it has several tokens.
    assert status == 200 and result["prompt_tokens"] > base + 1


def test_other_policy_needs_no_policy_of_run(root: Path, tmp_path: Path) -> None:
    run = shutil.copytree(root / "tiny", tmp_path / "moved")
    record = atomic_files.read_json(run / "config.json")
    record["config"]["policy"]["path"] = "runs/deleted/policy"
    atomic_files.write_json(run / "config.json", record)
    with PromptSender() as sender, LocalServer(server.make_app(tmp_path, sender)) as site:
        status, result = send(site, [None, None], run="moved")
        assert status == 400 and "no policy at runs/deleted/policy" in result["error"]
        assert "--policy=" in result["error"]
    tiny = PolicyConfig(path="webagent-tiny")
    with PromptSender(tiny) as sender, LocalServer(server.make_app(tmp_path, sender)) as site:
        assert send(site, [None, None], run="moved")[0] == 200
        assert not call(site, run="moved")[1]["is_policy_of_run"]


def test_changed_weights_of_an_evaluation_are_noted(root: Path, tmp_path: Path) -> None:
    shutil.copytree(root / "tiny", tmp_path / "run")
    copy = shutil.copytree(policy.resolve_dir("webagent-tiny"), tmp_path / "copy")
    content = json.loads((tmp_path / "run" / "config.json").read_text())
    content["config"]["policy"]["path"] = str(copy)
    atomic_files.write_json(tmp_path / "run" / "config.json", content)
    record = tmp_path / "run" / "policy.json"
    with PromptSender() as sender, LocalServer(server.make_app(tmp_path, sender)) as site:
        # Copies have the same files with a later time.
        os.utime(record, (0, 0))
        assert call(site, run="run")[1]["note"] == ""
        (copy / "config.json").write_text((copy / "config.json").read_text() + "\n")
        assert "have changed since this evaluation" in call(site, run="run")[1]["note"]


def test_stages_and_updates_use_the_policies_of_the_run(
    root: Path, tmp_path: Path, episodes: tuple[Episode, ...]
) -> None:
    run = tmp_path / "run"
    for name in ("eval/bc/episodes/episodes.jsonl", "grpo/episodes/update-00001.jsonl"):
        episode_log.append_episodes(run / name, episodes[:1])
    shutil.copy(root / "tiny" / "config.json", run)
    with PromptSender() as sender, LocalServer(server.make_app(tmp_path, sender)) as site:
        status, result = call(site, run="run", episode="bc/0")
        assert status == 400 and "bc/policy, which sampled this turn, is missing" in result["error"]
        update = call(site, run="run", episode="update-1/0")[1]
        assert update["policy"] == "webagent-tiny" and "before training" in update["note"]
        for phase in ("bc", "grpo"):
            shutil.copytree(policy.resolve_dir("webagent-tiny"), run / phase / "policy")
        bc = call(site, run="run", episode="bc/0")[1]
        assert bc["policy"].endswith("run/bc/policy") and bc["note"] == ""
        update = call(site, run="run", episode="update-1/0")[1]
        assert update["policy"].endswith("run/grpo/policy") and "after training" in update["note"]
        # Training has its own temperature, unlike this greedy evaluation.
        cfg = json.loads((run / "config.json").read_text())["config"]
        assert (update["temperature"], bc["temperature"]) == (cfg["rollout"]["temperature"], 0.0)
        assert send(site, [None, None], run="run", episode="bc/0")[0] == 200


# --- errors ---------------------------------------------------------------------------------------


def test_too_long_prompt_is_refused_before_loading(root: Path) -> None:
    with PromptSender() as sender, LocalServer(server.make_app(root, sender)) as site:
        status, result = send(site, [None, "button OK " * MAX_PROMPT_TOKENS])
        assert status == 400 and "\n" not in result["error"]
        assert f"at most {MAX_PROMPT_TOKENS} fit" in result["error"]
        assert "Shorten the prompt" in result["error"]
        assert not call(site)[1]["is_loaded"]


def test_huge_body_is_refused(site: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_MAX_BODY_BYTES", 1000)
    status, result = send(site, [None, "x" * 2000])
    assert status == 413 and "shorten it" in result["error"]


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://other.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {},
    ],
)
def test_request_of_another_page_is_refused(site: LocalServer, headers: dict[str, str]) -> None:
    status, result = send(site, [None, None], headers=headers)
    assert status == 403 and "not come from a page of this server" in result["error"]


def test_request_to_another_host_is_refused(site: LocalServer) -> None:
    headers = {"Host": "rebound.example", "Origin": "http://rebound.example"}
    connection = http.client.HTTPConnection(site.address, timeout=60)
    connection.request("POST", "/runs/tiny/turn?episode=eval/0&turn=0", b"{}", headers)
    assert connection.getresponse().status == 400
    connection.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"episode": "eval/99"}, "no episode eval/99"),
        ({"episode": "grpo/0"}, "no episode grpo/0"),
        ({"episode": "../0"}, "no episode ../0"),
        ({"turn": 99}, "no turn 100"),
        ({"turn": "x"}, "no turn"),
        ({"run": "none"}, "no such run"),
    ],
)
def test_unknown_turn_is_not_found(
    site: LocalServer, options: dict[str, Any], message: str
) -> None:
    for status, result in (call(site, **options), send(site, [None, None], **options)):
        assert status == 404 and message in result["error"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "not valid JSON"),
        (b"[]", "not a JSON object"),
        ({"messages": [1, 2], "temperature": 0, "samples": 1}, "messages must be a list"),
        ({"messages": [None], "temperature": 0, "samples": 1}, "the prompt has 2 messages"),
        ({"messages": [None, None], "temperature": -1, "samples": 1}, "temperature must be 0 to 5"),
        (b'{"messages": [], "temperature": NaN, "samples": 1}', "temperature must be 0 to 5"),
        ({"messages": [None, None], "temperature": 0, "samples": 9}, "samples must be 1 to 8"),
    ],
)
def test_invalid_request_names_the_problem(site: LocalServer, body: Any, message: str) -> None:
    status, result = call(site, "POST", body=body)
    assert status == 400 and message in result["error"]


def test_second_request_waits_for_its_turn(site: LocalServer, root: Path) -> None:
    with PromptSender() as sender, LocalServer(server.make_app(root, sender)) as other:
        assert sender._lock.acquire(blocking=False)  # as a running request
        status, result = send(other, [None, None])
        assert status == 409 and "another request is running" in result["error"]
        sender._lock.release()
        assert send(other, [None, None])[0] == 200


def test_damaged_weights_give_one_line(root: Path, tmp_path: Path) -> None:
    directory = shutil.copytree(policy.resolve_dir("webagent-tiny"), tmp_path / "damaged")
    for file in directory.glob("*.safetensors"):
        file.write_bytes(file.read_bytes()[:1000])
    with (
        PromptSender(PolicyConfig(path=str(directory))) as sender,
        LocalServer(server.make_app(root, sender)) as site,
    ):
        status, result = send(site, [None, None])
        assert status in (400, 500) and result["error"] and "\n" not in result["error"]
        assert call(site)[0] == 200


def test_failed_engine_is_replaced(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("out of memory")

    with PromptSender() as sender, LocalServer(server.make_app(root, sender)) as site:
        assert send(site, [None, None])[0] == 200
        assert sender._policy is not None and sender._policy._engine is not None
        monkeypatch.setattr(sender._policy._engine._programs, "decode", fail)
        status, result = send(site, [None, None])
        assert status == 500 and "out of memory" in result["error"]
        assert not call(site)[1]["is_loaded"]
        assert send(site, [None, None])[0] == 200


# --- endpoint -------------------------------------------------------------------------------------


def test_endpoint_receives_edited_messages(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reply = '<think> go </think> <answer> do(action="Click", element="7") </answer>'
    with serve_chat(monkeypatch, reply, "Hm.", 404) as chat_server:
        endpoint = EndpointConfig(chat_server.url, "tiny")
        with (
            PromptSender(PolicyConfig("openai", endpoint)) as sender,
            LocalServer(server.make_app(root, sender)) as site,
        ):
            assert call(site)[1]["policy"] == f"tiny at {chat_server.url}"
            assert chat_server.requests == []
            result = send(site, [None, "Task: Click Tomato."], temperature=0.5)[1]
            (response,) = result["responses"]
            assert response["response"] == reply and not response["invalid"]
            # Endpoints report no log-probabilities.
            assert set(response["logp"]) == {None}
            (body,) = chat_server.bodies
            assert body["messages"][1] == {"role": "user", "content": "Task: Click Tomato."}
            assert body["temperature"] == 0.5 and body["max_tokens"] == 96
            (response,) = send(site, [None, None])[1]["responses"]
            assert response["invalid"] and response["action"].startswith("Not executed: ")
            status, result = send(site, [None, None])
            assert status == 400 and "policy.endpoint.model" in result["error"]
            assert "\n" not in result["error"]


# --- page -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launch_chromium() as browser:
        yield browser


@pytest.fixture
def page(browser: Browser, site: LocalServer) -> Iterator[Page]:
    """Yield a page with the first turn and an open panel; errors of its script fail the test."""
    page = browser.new_page(viewport=DESKTOP)
    page.set_default_timeout(60_000)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    # If the report is being built, the page reloads itself.
    page.goto(f"{site.url}/runs/tiny/report.html#episode=eval/0")
    page.get_by_text("Resend with an edited prompt").click()
    yield page
    page.close()
    assert errors == []


def test_page_sends_prompt_and_shows_responses(page: Page, episodes: tuple[Episode, ...]) -> None:
    recorded, new = page.locator(".response").nth(0), page.locator(".response").nth(1)
    page.get_by_role("button", name="Send", exact=True).click()
    expect(page.locator(".send-status")).to_contain_text("Response to the recorded prompt")
    for card in (recorded, new):
        text = card.locator(".tokens").text_content()
        assert text is not None
        assert text.removesuffix("end") == episodes[0].turns[0].response_text
    page.get_by_label("Message of the user").fill("Task: Click Tomato.\nbutton Tomato [7]")
    page.get_by_label("Samples").fill("2")
    page.get_by_role("button", name="Send", exact=True).click()
    expect(page.locator(".send-status")).to_contain_text("Response to an edited prompt")
    expect(page.locator(".response h4")).to_contain_text(
        ["Recorded", "New response 1", "New response 2"]
    )
    expect(new).to_contain_text("Tomato")


def test_page_shows_errors_in_one_line(page: Page) -> None:
    page.get_by_label("Message of the user").fill("button OK " * 500)
    page.get_by_role("button", name="Send", exact=True).click()
    expect(page.locator(".send-status.send-error")).to_contain_text("Shorten the prompt")
    page.get_by_label("Message of the user").fill("Task: Click Tomato.\nbutton Tomato [7]")
    page.get_by_role("button", name="Send", exact=True).click()
    expect(page.locator(".send-status")).to_contain_text("Response to an edited prompt")
    expect(page.locator(".send-error")).to_have_count(0)


def test_arrow_keys_in_the_prompt_keep_the_turn(page: Page) -> None:
    editor = page.get_by_label("Message of the user")
    editor.focus()
    for key in ("ArrowRight", "ArrowLeft", "ArrowDown"):
        page.keyboard.press(key)
    expect(page.locator(".counter")).to_contain_text("Turn 1 of")
    expect(editor).to_be_focused()


def test_panel_fits_phone_width(page: Page) -> None:
    page.set_viewport_size(PHONE)
    expect(page.locator(".send-options")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


# --- launcher -------------------------------------------------------------------------------------


def test_launcher_passes_policy_of_its_flags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main = load_main("view")
    senders: list[PromptSender] = []
    monkeypatch.setattr(server, "serve_forever", lambda root, port, sender: senders.append(sender))
    values = config.to_config_dict(quickstart.get_config())
    with flagsaver.flagsaver(config=values):
        main(["view.py", str(tmp_path)])
        with flagsaver.flagsaver(policy="runs/bc/policy"):
            main(["view.py", str(tmp_path)])
        values.policy.kind = "openai"
        values.policy.endpoint.url = "http://localhost:8000/v1"
        values.policy.endpoint.model = "tiny"
        values.prompt.template = "webarena"
        main(["view.py", str(tmp_path)])
    policies = [sender._policy_override for sender in senders]
    assert policies[0] is None
    assert policies[1] is not None and policies[1].path == "runs/bc/policy"
    assert policies[2] is not None and policies[2].kind == "openai"
