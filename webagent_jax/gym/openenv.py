"""Environment server with OpenEnv's protocol, for trainers of other projects.

A client opens a WebSocket at /ws and has an environment of its own until it closes the socket.
It sends {"type": "reset", "data": {...}}, {"type": "step", "data": {...}}, {"type": "state"} and
{"type": "close"}. The server answers with the type "observation", "state" or "error". GET /health,
/metadata and /schema describe the server.

Source: OpenEnv 0.10, https://github.com/huggingface/OpenEnv. Actions and observations have the
fields of its environment for BrowserGym, so that clients of that environment work here; the actions
themselves are in the grammar of this package. OpenEnv's POST /reset and /step have no session and
thus no second turn; they are not implemented.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from webagent_jax.config import ConfigError
from webagent_jax.gym.environment import SYSTEM_MESSAGE, WebEnv
from webagent_jax.types import InfraError, Split, Suite, Task
from webagent_jax.unicode import to_well_formed

_RESET_FIELDS = ("seed", "task_name", "episode_id")
# Types of JSON Schema by field, as /schema publishes them.
_ACTION_FIELDS = {"action_str": "string"}
_OBSERVATION_FIELDS = {
    "text": "string",
    "url": "string",
    "goal": "string",
    "error": "string",
    "last_action_error": "boolean",
}
_STATE_FIELDS = {
    "episode_id": "string",
    "step_count": "integer",
    "task_name": "string",
    "task_id": "string",
    "goal": "string",
    "current_url": "string",
    "cum_reward": "number",
}


class _RequestError(Exception):
    """Error in a message of the client."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class _SeedError(_RequestError):
    """Seed beyond the tasks of the split."""


class _EnvironmentSession:
    """Environment of one client. Methods block, so they run in a thread.

    Args:
        tasks: source of tasks.
        max_turns: turns after which an episode is truncated and scored.
    """

    def __init__(self, tasks: TaskSource, max_turns: int) -> None:
        self._tasks, self._max_turns = tasks, max_turns
        self._env: WebEnv | None = None
        self._state: dict[str, Any] = {}

    def reset(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Start an episode and return its first observation.

        Args:
            data: optional `seed` and `task_name`, which select the task, and `episode_id`.

        Raises:
            _RequestError: there is no such field or task.
        """
        unknown = sorted(data.keys() - set(_RESET_FIELDS))
        if unknown:
            message = f"a reset has no field {unknown[0]!r}, only: {', '.join(_RESET_FIELDS)}"
            raise _RequestError("VALIDATION_ERROR", message)
        name, task = self._tasks.select(data.get("task_name"), data.get("seed"))
        # Closed first, so that a client never holds two browser contexts.
        self.close()
        # Assigned before the reset, so that `close` releases its browser context if that fails.
        self._env = WebEnv(self._tasks.suite, [task], max_turns=self._max_turns)
        _, info = self._env.reset(options={"task": 0})
        self._state = {
            "episode_id": data.get("episode_id") or str(uuid.uuid4()),
            "step_count": 0,
            "task_name": name,
            "task_id": task.id,
            "goal": info["intent"],
            "current_url": info["url"],
            "cum_reward": 0.0,
        }
        return self._format_result(info, reward=None, done=False, truncated=False)

    def step(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Execute an action and return observation, reward and end of the episode.

        Args:
            data: `action_str`, a response such as do(action="Click", element="7").
        """
        action = data.get("action_str")
        if not isinstance(action, str):
            raise _RequestError("VALIDATION_ERROR", "a step needs the field action_str, a string")
        if self._env is None:
            raise _RequestError("SESSION_ERROR", "there is no episode: send a reset first")
        _, reward, terminated, truncated, info = self._env.step(action)
        self._state["step_count"] += 1
        self._state["cum_reward"] += reward
        self._state["current_url"] = info["url"]
        done = terminated or truncated
        if done:
            self.close()
        return self._format_result(info, reward=reward, done=done, truncated=truncated)

    def state(self) -> dict[str, Any]:
        """Return the state of the episode; an id of None before the first reset."""
        return self._state or {"episode_id": None, "step_count": 0}

    def close(self) -> None:
        """Close the environment; the state stays readable."""
        env, self._env = self._env, None
        if env:
            env.close()

    def _format_result(
        self, info: Mapping[str, Any], *, reward: float | None, done: bool, truncated: bool
    ) -> dict[str, Any]:
        observation = {
            "text": info["page"],
            "url": info["url"],
            "goal": info["intent"],
            "error": info["error"] or "",
            "last_action_error": info["error"] is not None,
        }
        metadata = {"task": info["task"], "truncated": truncated}
        return {"observation": observation, "reward": reward, "done": done, "metadata": metadata}


class TaskSource:
    """Tasks of a suite, numbered by seeds: each name in turn, then the next task of each.

    Args:
        suite: suite of the tasks.
        split: split of the tasks.

    Raises:
        ConfigError: the split has no tasks.
    """

    def __init__(self, suite: Suite, split: Split) -> None:
        self.suite = suite
        self._split, self._names = split, suite.task_names(split)
        if not self._names:
            raise ConfigError(f"the split {split!r} has no tasks: choose other tasks or a split")
        # By name, or None for resets without a name; shared by the threads of all clients.
        self._unused_seeds: dict[object, Iterator[int]] = defaultdict(itertools.count)

    def select(self, name: object, seed: object) -> tuple[str, Task]:
        """Return name and task of a seed; without a seed, those of the next unused one.

        Unused seeds begin again from 0 after the last task of the split.

        Args:
            name: task name; None: the seed selects the name too. A task id that `webagent
                list-tasks` prints selects that task; it needs a seed of None.
            seed: index of the task among those of the name, or of the split without a name.

        Raises:
            _RequestError: there is no such name or task.
        """
        if name is not None and name not in self._names:
            name, seed = self._name_of_id(name, seed), 0
        if seed is None:
            return self._select_unused(name)
        if not isinstance(seed, int) or seed < 0:
            raise _RequestError("VALIDATION_ERROR", f"seed {seed!r} must be an integer from 0")
        index = seed
        if name is None:
            index, position = divmod(seed, len(self._names))
            name = self._names[position]
        try:
            return str(name), self.suite.task(str(name), self._split, index)
        except IndexError:
            raise _SeedError(
                "VALIDATION_ERROR",
                f"seed {seed} is beyond the tasks of the split {self._split!r}: choose a smaller "
                "one, or omit it for the next task",
            ) from None

    def _name_of_id(self, task_id: object, seed: object) -> str:
        """Return the name whose first task has an id."""
        for name in self._names:
            if self.suite.task(name, self._split, 0).id == task_id:
                if seed is not None:
                    message = f"the task id {task_id!r} includes the seed: omit seed"
                    raise _RequestError("VALIDATION_ERROR", message)
                return name
        names = ", ".join(self._names[:3])
        raise _RequestError(
            "VALIDATION_ERROR",
            f"no task_name {task_id!r} in the split {self._split!r}; names are: {names}, ...",
        )

    def _select_unused(self, name: object) -> tuple[str, Task]:
        try:
            return self.select(name, next(self._unused_seeds[name]))
        except _SeedError:
            self._unused_seeds[name] = itertools.count(1)
            return self.select(name, 0)


class OpenEnvServer:
    """ASGI application that serves the environments of a suite.

    Args:
        suite: suite of the tasks; the caller closes it.
        split: split of the tasks.
        name: name of the environment, such as that of the suite.
        max_turns: turns after which an episode is truncated and scored.
        max_sessions: clients at the same time; a further one receives CAPACITY_REACHED.
    """

    def __init__(
        self, suite: Suite, split: Split, *, name: str, max_turns: int, max_sessions: int
    ) -> None:
        self._tasks = TaskSource(suite, split)
        self._name, self._max_turns, self._max_sessions = name, max_turns, max_sessions
        self._num_sessions = 0
        # Calls of an environment wait for the browser, so each client needs a thread.
        self._executor = ThreadPoolExecutor(max_sessions, thread_name_prefix="openenv")
        self.app = Starlette(
            routes=[
                WebSocketRoute("/ws", self._serve_session),
                Route("/health", self._health),
                Route("/metadata", self._metadata),
                Route("/schema", self._schema),
            ]
        )

    def close(self) -> None:
        """Stop the threads; those in a call end with it."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def _health(self, request: Request) -> JSONResponse:
        return JSONResponse({"status": "healthy"})

    async def _metadata(self, request: Request) -> JSONResponse:
        description = f"webagent_jax: tasks of {self._name} in isolated browsers"
        content = {"name": self._name, "description": description}
        return JSONResponse(content | {"readme_content": SYSTEM_MESSAGE})

    async def _schema(self, request: Request) -> JSONResponse:
        fields = {
            "action": _ACTION_FIELDS,
            "observation": _OBSERVATION_FIELDS,
            "state": _STATE_FIELDS,
        }
        return JSONResponse({name: _json_schema(types) for name, types in fields.items()})

    async def _serve_session(self, socket: WebSocket) -> None:
        # Only browsers send an origin: no website may use the server of its visitor.
        if "origin" in socket.headers:
            await socket.close()
            return
        await socket.accept()
        if self._num_sessions >= self._max_sessions:
            message = f"all {self._max_sessions} sessions are in use"
            await socket.send_json(_error("CAPACITY_REACHED", message))
            await socket.close(1013)  # "try again later"
            return
        self._num_sessions += 1
        session = _EnvironmentSession(self._tasks, self._max_turns)
        try:
            await self._exchange_messages(socket, session)
        except WebSocketDisconnect:
            pass  # a client may leave without a close message
        finally:
            self._num_sessions -= 1
            await self._run(session.close)

    async def _exchange_messages(self, socket: WebSocket, session: _EnvironmentSession) -> None:
        while True:
            try:
                # JSON escapes may decode to lone surrogates, which no response can contain.
                message = to_well_formed(json.loads(await socket.receive_text()))
            except KeyError:
                await socket.send_json(_error("INVALID_JSON", "a message is a text frame"))
                continue
            # JSONDecodeError is a ValueError; so is a number with too many digits for Python.
            except (ValueError, RecursionError) as error:
                await socket.send_json(_error("INVALID_JSON", str(error)))
                continue
            if isinstance(message, dict) and message.get("type") == "close":
                await socket.close()
                return
            try:
                response = await self._respond(message, session)
            except _RequestError as error:
                response = _error(error.code, str(error))
            except (InfraError, ConfigError) as error:
                # The episode has no valid reward; the client resets. A ConfigError is a mistake in
                # the code of the suite.
                await self._run(session.close)
                response = _error("EXECUTION_ERROR", str(error))
            await socket.send_json(response)

    async def _respond(self, message: object, session: _EnvironmentSession) -> dict[str, Any]:
        if not isinstance(message, dict) or not isinstance(message.get("data", {}), dict):
            raise _RequestError("VALIDATION_ERROR", "a message is an object with type and data")
        data = message.get("data", {})
        match message.get("type"):
            case "reset":
                return {"type": "observation", "data": await self._run(session.reset, data)}
            case "step":
                return {"type": "observation", "data": await self._run(session.step, data)}
            case "state":
                return {"type": "state", "data": session.state()}
            case other:
                raise _RequestError("UNKNOWN_TYPE", f"unknown message type {other!r}")

    async def _run(self, function: Any, *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._executor, function, *args)


def _error(code: str, message: str) -> dict[str, Any]:
    return {"type": "error", "data": {"code": code, "message": message}}


def _json_schema(types: Mapping[str, str]) -> dict[str, Any]:
    properties = {name: {"type": kind} for name, kind in types.items()}
    return {"type": "object", "properties": properties, "required": list(types)}
