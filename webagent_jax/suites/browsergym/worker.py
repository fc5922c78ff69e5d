"""One BrowserGym environment at a time, for whoever holds the other end of a pipe.

Runs by itself, in an interpreter that has BrowserGym, and knows nothing of the rest of this
package: BrowserGym holds one Playwright to a process, and an older one than ours.

A request is a JSON list, [method of World, arguments by name]; the answer is {"got": result} or
{"error": words}.
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
    """BrowserGym's chat, without the second Chromium that it opens to show it."""

    def __init__(self, **_: Any) -> None:
        self.messages: list[dict[str, str]] = []

    def add_message(self, role: str, msg: str) -> None:
        if role != "info":
            self.messages.append({"role": role, "message": msg})

    def close(self) -> None:
        self.messages.clear()


class World:
    """What can be asked for."""

    def __init__(self) -> None:
        self._environment: gymnasium.Env[Any, Any] | None = None
        self._seen: dict[str, Any] = {}

    def unknown(self, ids: list[str]) -> list[str]:
        """Those that no installed part of BrowserGym has registered."""
        for benchmark in {f"browsergym.{name.split('/')[-1].split('.')[0]}" for name in ids}:
            if importlib.util.find_spec(benchmark):
                importlib.import_module(benchmark)
        return [name for name in ids if name not in gymnasium.registry]

    def start(self, id: str, seed: int, options: dict[str, Any]) -> dict[str, Any]:
        self.close()
        self.unknown([id])
        actions = HighLevelActionSet(["chat", "bid", "nav", "tab", "coord"], multiaction=True)
        self._environment = gymnasium.make(
            id, disable_env_checker=True, action_mapping=actions.to_python_code, **options
        )
        self._seen, _ = self._environment.reset(seed=seed)
        return {"goal": self._seen["goal"], "page": self._page()}

    def step(self, action: str) -> dict[str, Any]:
        assert self._environment, "start comes first"
        self._seen, reward, terminated, truncated, _ = self._environment.step(action)
        return {"page": self._page(), "reward": float(reward), "done": terminated or truncated}

    def picture(self) -> str:
        """JPEG of the last observation, in base64."""
        written = io.BytesIO()
        Image.fromarray(self._seen["screenshot"]).convert("RGB").save(written, "JPEG", quality=60)
        return base64.b64encode(written.getvalue()).decode()

    def close(self) -> None:
        environment, self._environment = self._environment, None
        if environment:
            environment.close()

    def _page(self) -> dict[str, Any]:
        seen = self._seen
        return {
            "nodes": [_node(each) for each in seen["axtree_object"]["nodes"]],
            "properties": seen["extra_element_properties"],
            "url": seen["url"],
            "tabs": list(seen["open_pages_titles"]),
            "front": int(seen["active_page_index"][0]),
            "error": seen["last_action_error"],
        }


def _node(node: dict[str, Any]) -> dict[str, Any]:
    """What is told of a node of the accessibility tree, a tenth of its size."""
    return {
        "key": node["nodeId"],
        "bid": node.get("browsergym_id"),
        "role": node["role"]["value"],
        "name": " ".join(str(node.get("name", {}).get("value", "")).split()),
        "value": str(node.get("value", {}).get("value", "")),
        "state": {each["name"]: each["value"].get("value") for each in node.get("properties", [])},
        "children": node["childIds"],
    }


def main() -> None:
    pipe = Connection(int(sys.argv[1]))
    browsergym.core.env.Chat = Messages
    world = World()
    while True:
        try:
            method, arguments = json.loads(pipe.recv_bytes())
        except EOFError:
            world.close()
            return
        try:
            answer = {"got": getattr(world, method)(**arguments)}
        except Exception as error:  # whatever a task raises is told, and is nobody's end
            answer = {"error": f"{type(error).__name__}: {error}"}
        pipe.send_bytes(json.dumps(answer).encode())


if __name__ == "__main__":
    main()
