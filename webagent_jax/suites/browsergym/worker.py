"""Worker process that runs one BrowserGym environment at a time and serves requests over a pipe.

It runs with an interpreter that has BrowserGym and imports nothing else of this package, because
BrowserGym needs one Playwright per process, of an older version than ours.

A request is a JSON list, [method of EnvServer, arguments by name]; the response is
{"got": result} or {"error": message}.
"""

from __future__ import annotations

import base64
import importlib.util
import io
import json
import sys
from multiprocessing.connection import Connection
from typing import Any

import browsergym.core.env
import gymnasium
from browsergym.core.action.highlevel import HighLevelActionSet
from PIL import Image


class Messages:
    """Replacement of BrowserGym's chat, which would open a second Chromium to show it."""

    def __init__(self, **_: Any) -> None:
        self.messages: list[dict[str, str]] = []

    def add_message(self, role: str, msg: str) -> None:
        """Store a message, unless its role is "info"."""
        if role != "info":
            self.messages.append({"role": role, "message": msg})

    def close(self) -> None:
        """Delete all messages."""
        self.messages.clear()


class EnvServer:
    """Methods that requests call."""

    def __init__(self) -> None:
        self._environment: gymnasium.Env[Any, Any] | None = None
        self._observation: dict[str, Any] = {}

    def unknown(self, ids: list[str]) -> list[str]:
        """Return the ids that no installed package of BrowserGym registers."""
        # Importing the package of a benchmark registers its ids.
        for benchmark in {f"browsergym.{name.split('/')[-1].split('.')[0]}" for name in ids}:
            if importlib.util.find_spec(benchmark):
                importlib.import_module(benchmark)
        return [name for name in ids if name not in gymnasium.registry]

    def reset(self, id: str, seed: int, options: dict[str, Any]) -> dict[str, Any]:
        """Reset a new environment and return its goal and page.

        Args:
            id: id of the environment.
            seed: seed of the reset.
            options: further arguments of the environment.
        """
        self.close()
        # Imports the benchmark of the id, which this process may not have registered yet.
        self.unknown([id])
        # multiaction, because one of our actions may take two calls.
        actions = HighLevelActionSet(["chat", "bid", "nav", "tab", "coord"], multiaction=True)
        self._environment = gymnasium.make(
            id, disable_env_checker=True, action_mapping=actions.to_python_code, **options
        )
        self._observation, _ = self._environment.reset(seed=seed)
        return {"goal": self._observation["goal"], "page": self._serialize_page()}

    def step(self, action: str) -> dict[str, Any]:
        """Execute an action and return page, reward and done."""
        assert self._environment, "call reset first"
        self._observation, reward, terminated, truncated, _ = self._environment.step(action)
        return {
            "page": self._serialize_page(),
            "reward": float(reward),
            "done": terminated or truncated,
        }

    def screenshot(self) -> str:
        """Return a base64 JPEG of the last observation."""
        buffer = io.BytesIO()
        Image.fromarray(self._observation["screenshot"]).convert("RGB").save(
            buffer, "JPEG", quality=60
        )
        return base64.b64encode(buffer.getvalue()).decode()

    def close(self) -> None:
        """Close the environment, if there is one."""
        environment, self._environment = self._environment, None
        if environment:
            environment.close()

    def _serialize_page(self) -> dict[str, Any]:
        observation = self._observation
        return {
            "nodes": [_serialize_node(node) for node in observation["axtree_object"]["nodes"]],
            "properties": observation["extra_element_properties"],
            "url": observation["url"],
            "tabs": list(observation["open_pages_titles"]),
            "front": int(observation["active_page_index"][0]),
            "error": observation["last_action_error"],
        }


def _serialize_node(node: dict[str, Any]) -> dict[str, Any]:
    """Return the used fields of a node of the accessibility tree, about a tenth of its size."""
    return {
        "key": node["nodeId"],
        "bid": node.get("browsergym_id"),
        "role": node["role"]["value"],
        "name": _on_one_line(node.get("name", {})),
        "value": _on_one_line(node.get("value", {})),
        "state": {
            state_property["name"]: state_property["value"].get("value")
            for state_property in node.get("properties", [])
        },
        "children": node["childIds"],
    }


def _on_one_line(text: dict[str, Any]) -> str:
    # An observation has a line per element: a line end in a text would look like another element.
    return " ".join(str(text.get("value", "")).split())


def main() -> None:
    """Serve requests until the other end closes the pipe."""
    pipe = Connection(int(sys.argv[1]))
    # Replaced before the first environment is created.
    browsergym.core.env.Chat = Messages
    server = EnvServer()
    while True:
        try:
            method, arguments = json.loads(pipe.recv_bytes())
        except EOFError:
            server.close()
            return
        try:
            response = {"got": getattr(server, method)(**arguments)}
        except Exception as error:  # an exception in a task must not end the worker
            response = {"error": f"{type(error).__name__}: {error}"}
        pipe.send_bytes(json.dumps(response).encode())


if __name__ == "__main__":
    main()
