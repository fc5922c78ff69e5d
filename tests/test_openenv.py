"""Tests of the server with OpenEnv's protocol: another process serves, the test is the client."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest
import uvicorn
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Request, TextMessage

from webagent_jax.agent.actions import format_action
from webagent_jax.arena import selection
from webagent_jax.arena.registry import TEMPLATES, seed_data
from webagent_jax.config import ConfigError
from webagent_jax.gym.environment import SYSTEM_MESSAGE
from webagent_jax.gym.openenv import OpenEnvServer, TaskSource, _EnvironmentSession, _RequestError
from webagent_jax.types import Element, InfraError, Observation, ResetResult, Task

pytestmark = pytest.mark.browser
ROOT = Path(__file__).parents[1]
MAX_SESSIONS = 2


ELEMENT = re.compile(
    r"(button|link|textbox|checkbox|radio|select|tab|item) ?([^\n]*?) ?\[(\d+)\](?: = ([^|\n]*))?"
)


def read_page(observation: dict[str, Any]) -> Observation:
    """Return the observation of an expert, with the elements that the text lists."""
    elements = {
        number: Element(kind, name, value)
        for kind, name, number, value in ELEMENT.findall(observation["text"])
    }
    return Observation(observation["text"], observation["url"], elements=elements)


class Client:
    """Client of one environment: a WebSocket with JSON messages."""

    def __init__(self, port: int, headers: tuple[tuple[bytes, bytes], ...] = ()) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._connection = WSConnection(ConnectionType.CLIENT)
        self._text = ""
        request = Request(host=f"127.0.0.1:{port}", target="/ws", extra_headers=list(headers))
        self._socket.sendall(self._connection.send(request))
        self.is_accepted = isinstance(self._next_event(), AcceptConnection)

    def _next_event(self) -> object:
        while True:
            for event in self._connection.events():
                return event
            self._connection.receive_data(self._socket.recv(65_536) or None)

    def receive(self) -> dict[str, Any]:
        text = ""
        while True:
            event = self._next_event()
            assert isinstance(event, TextMessage), event
            text += event.data
            if event.message_finished:
                return json.loads(text)

    def send_text(self, text: str) -> dict[str, Any]:
        self._socket.sendall(self._connection.send(TextMessage(data=text)))
        return self.receive()

    def send(self, kind: str, data: object = None) -> dict[str, Any]:
        return self.send_text(json.dumps({"type": kind, "data": data or {}}))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()


def reset_when_free(port: int) -> dict[str, Any]:
    """Return the answer to a reset; wait while all sessions are in use."""
    deadline = time.monotonic() + 60
    while True:
        with Client(port) as client:
            answer = client.send("reset", {"seed": 1})
        if answer["data"].get("code") != "CAPACITY_REACHED" or time.monotonic() > deadline:
            return answer
        time.sleep(0.05)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [
        # Tests that a shell runs in the background ignore SIGINT, and so would this process.
        *("env", "--default-signal=INT"),
        *(sys.executable, "launch/serve_env.py", "--config=configs/arena.py", "--split=test"),
        *(f"--port={port}", f"--config.rollout.max_concurrent_episodes={MAX_SESSIONS}"),
        *("--config.rollout.max_turns=25", "--config.browser.call_timeout=60"),
    ]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert any("OpenEnv server of arena" in line for line in server.stdout)
            yield port
            server.send_signal(signal.SIGINT)
            # The documented way to stop the server is not an error.
            assert server.wait(timeout=200) == 0
        finally:
            server.terminate()


def test_oracle_solves_arena_task(port: int) -> None:
    # The first task of the test split is that of seed 0.
    generated = selection.select_tasks(TEMPLATES, seed_data())["test"][0]
    with Client(port) as client:
        result = client.send("reset", {"seed": 0, "episode_id": "mine"})["data"]
        assert (result["reward"], result["done"]) == (None, False)
        assert result["observation"]["goal"] == generated.task.intent
        page = read_page(result["observation"])
        expert = generated.template.expert(generated.instance.slots, page)
        decision = next(expert)
        while not result["done"]:
            result = client.send("step", {"action_str": format_action(decision.action)})["data"]
            assert not result["observation"]["last_action_error"], result
            if not result["done"]:
                decision = expert.send(read_page(result["observation"]))
        assert result["reward"] == 1.0
        state = client.send("state")["data"]
        assert state["episode_id"] == "mine"
        assert (state["cum_reward"], state["task_id"]) == (1.0, generated.task.id)
        assert state["step_count"] > 1


def test_sessions_have_separate_environments(port: int) -> None:
    with Client(port) as first, Client(port) as second:
        names = [client.send("reset", {"seed": 3})["data"] for client in (first, second)]
        assert names[0]["observation"]["goal"] == names[1]["observation"]["goal"]
        first.send("step", {"action_str": "exit()"})
        assert first.send("state")["data"]["step_count"] == 1
        assert second.send("state")["data"]["step_count"] == 0


def test_further_client_is_refused(port: int) -> None:
    with Client(port) as first, Client(port) as second, Client(port) as third:
        assert third.receive()["data"]["code"] == "CAPACITY_REACHED"
        first.send("state")
        second.send("state")


def test_client_that_leaves_frees_its_session(port: int) -> None:
    for _ in range(2 * MAX_SESSIONS):
        assert reset_when_free(port)["type"] == "observation"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{", "INVALID_JSON"),
        ("[]", "VALIDATION_ERROR"),
        ('{"type": "jump"}', "UNKNOWN_TYPE"),
        ('{"type": "reset", "data": []}', "VALIDATION_ERROR"),
        ('{"type": "reset", "data": {"seed": -1}}', "VALIDATION_ERROR"),
        ('{"type": "reset", "data": {"seed": "1"}}', "VALIDATION_ERROR"),
        ('{"type": "reset", "data": {"task_name": "shop/fly"}}', "VALIDATION_ERROR"),
        ('{"type": "reset", "data": {"task_name": ["shop"]}}', "VALIDATION_ERROR"),
        ('{"type": "step", "data": {"action_str": "exit()"}}', "SESSION_ERROR"),
        ('{"type": "step", "data": {"action": "exit()"}}', "VALIDATION_ERROR"),
        ("9" * 5_000, "INVALID_JSON"),
        ("[" * 200_000, "INVALID_JSON"),
    ],
)
def test_faulty_message_gets_error_and_session_continues(port: int, text: str, code: str) -> None:
    with Client(port) as client:
        response = client.send_text(text)
        assert (response["type"], response["data"]["code"]) == ("error", code)
        assert client.send("state")["data"] == {"episode_id": None, "step_count": 0}


def test_binary_message_gets_error_and_session_continues(port: int) -> None:
    with Client(port) as client:
        client._socket.sendall(client._connection.send(BytesMessage(data=b"{}")))
        assert client.receive()["data"]["code"] == "INVALID_JSON"
        assert client.send("state")["data"] == {"episode_id": None, "step_count": 0}


def test_response_without_action_is_error_of_the_agent(port: int) -> None:
    with Client(port) as client:
        client.send("reset", {"seed": 0})
        result = client.send("step", {"action_str": "hello"})["data"]
        assert result["observation"]["last_action_error"]
        assert "no action" in result["observation"]["error"]
        assert result["done"] is False


def test_close_message_closes_socket(port: int) -> None:
    with Client(port) as client:
        client._socket.sendall(client._connection.send(TextMessage(data='{"type": "close"}')))
        assert isinstance(client._next_event(), CloseConnection)


def test_website_cannot_connect(port: int) -> None:
    with Client(port, headers=((b"origin", b"http://evil.example"),)) as client:
        assert not client.is_accepted


@pytest.mark.parametrize("path", ["health", "metadata", "schema"])
def test_description(port: int, path: str) -> None:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}") as response:
        content = json.load(response)
    expected = {
        "health": {"status": "healthy"},
        "metadata": {
            "name": "arena",
            "description": "webagent_jax: tasks of arena in isolated browsers",
            "readme_content": SYSTEM_MESSAGE,
        },
    }
    if path == "schema":
        assert content["action"]["properties"] == {"action_str": {"type": "string"}}
        assert set(content) == {"action", "observation", "state"}
    else:
        assert content == expected[path]


def test_used_port_is_a_clear_error(port: int) -> None:
    command = [sys.executable, "launch/serve_env.py", "--config=configs/arena.py", f"--port={port}"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert "use another --port" in result.stderr
    assert "Traceback" not in result.stderr


class FailingSuite:
    """Two tasks of one name, whose environments raise an error at reset or open a page."""

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error
        self.num_open = 0

    def task_names(self, split: str) -> list[str]:
        return ["go"] if split == "train" else []

    def task(self, name: str, split: str, index: int) -> Task:
        return Task(f"site/{name}/{(0, 1)[index]}", "site", (name,), "Go.", "")

    def make_env(self, task: Task) -> FailingSuite:
        self.num_open += 1
        return self

    def reset(self) -> ResetResult:
        if self._error:
            raise self._error
        return ResetResult("Go.", Observation("", ""))

    def close(self) -> None:
        self.num_open -= 1


def test_failed_reset_closes_environment() -> None:
    suite = FailingSuite(InfraError("the site is down"))
    session = _EnvironmentSession(TaskSource(suite, "train"), max_turns=3)
    with pytest.raises(InfraError):
        session.reset({})
    session.close()
    assert suite.num_open == 0


@contextlib.contextmanager
def served(suite: FailingSuite) -> Iterator[int]:
    """Serve the suite in a thread; the context value is the port."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        contextlib.closing(
            OpenEnvServer(suite, "train", name="site", max_turns=3, max_sessions=1)
        ) as environments,
    ):
        server = uvicorn.Server(uvicorn.Config(environments.app, log_level="error"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()


@pytest.mark.parametrize("error", [InfraError("the site is down"), ConfigError("no such page")])
def test_error_of_suite_is_an_answer_and_session_continues(error: Exception) -> None:
    suite = FailingSuite(error)
    with served(suite) as port, Client(port) as client:
        answer = client.send("reset")
        assert answer["data"] == {"code": "EXECUTION_ERROR", "message": str(error)}
        assert suite.num_open == 0
        assert client.send("state")["type"] == "state"


def test_lone_surrogates_of_messages_are_replaced() -> None:
    with served(FailingSuite()) as port, Client(port) as client:
        client.send("reset", {"episode_id": "a\ud800"})
        assert client.send("state")["data"]["episode_id"] == "a\ufffd"
        result = client.send("step", {"action_str": 'do(action="\ud800'})["data"]
        assert 'do(action="\ufffd' in result["observation"]["error"]


def test_resets_without_seed_repeat_the_tasks() -> None:
    session = _EnvironmentSession(TaskSource(FailingSuite(), "train"), max_turns=3)
    for number in range(5):
        session.reset({})
        assert session.state()["task_id"] == f"site/go/{number % 2}"
    session.reset({"task_name": "go"})  # has a count of its own
    assert session.state()["task_id"] == "site/go/0"
    session.reset({})
    assert session.state()["task_id"] == "site/go/1"


def test_reset_accepts_task_id_of_list_tasks() -> None:
    session = _EnvironmentSession(TaskSource(FailingSuite(), "train"), max_turns=3)
    session.reset({"task_name": "site/go/0"})
    assert (session.state()["task_name"], session.state()["task_id"]) == ("go", "site/go/0")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"task": "go"}, "a reset has no field 'task', only: seed, task_name, episode_id"),
        (
            {"task_name": "site/go/7"},
            "no task_name 'site/go/7' in the split 'train'; names are: go",
        ),
        ({"task_name": "site/go/0", "seed": 1}, "the task id 'site/go/0' includes the seed"),
        ({"seed": 1_234_567_890}, "choose a smaller one, or omit it"),
    ],
)
def test_reset_reports_field_to_fix(data: dict[str, Any], message: str) -> None:
    session = _EnvironmentSession(TaskSource(FailingSuite(), "train"), max_turns=3)
    with pytest.raises(_RequestError, match=message):
        session.reset(data)


def test_split_without_tasks_is_an_error() -> None:
    with pytest.raises(ConfigError, match="the split 'test' has no tasks"):
        TaskSource(FailingSuite(), "test")
