"""The nouns that cross doors between rooms, and the protocols the rooms meet by.

Everything here is plain data: frozen dataclasses of numpy arrays and builtins, so that a browser
host needs no accelerator library to make or read them. One alphabet for shapes is used in the
whole package:

    B rows, L tokens of a row, R response tokens of a row, V vocabulary, D model width,
    H query heads, K key-value heads, E head width, G group size, T turns, P prompt tokens,
    C response tokens.
"""

from __future__ import annotations

import enum
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int32]
FloatArray = npt.NDArray[np.float32]

Split = Literal["train", "test"]
FinishReason = Literal["stop", "length"]


class InfraError(Exception):
    """Browser, site or evaluator failed. Never the agent's fault, never a reward of 0."""


# --- tasks -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Task:
    """One thing to do on a web site, and how it is judged."""

    id: str  # unique over all suites, "miniwob/login-user/1007"
    suite: str  # "miniwob"
    sites: tuple[str, ...]  # what success is reported by; a MiniWoB++ page counts as a site
    intent: str  # the instruction; empty when only the started page can tell it
    start_url: str
    seed: int = 0  # of the world, where the world is generated
    storage_state: str | None = None  # path of a signed-in browser state
    eval: Mapping[str, Any] = field(default_factory=dict)  # evaluator specification of the suite


# --- what the agent sees and does ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Element:
    """One element of a page that the agent can act on."""

    kind: str  # "button", "link", "textbox", "checkbox", "radio", "select", "item", ...
    name: str  # its accessible name or its text
    value: str = ""  # current text of a field, chosen option of a select, "on" / "off" of a box
    box: tuple[float, float, float, float] = (
        0.0,
        0.0,
        0.0,
        0.0,
    )  # x, y, width, height in CSS pixels


@dataclass(frozen=True, slots=True)
class Observation:
    """What the agent is told of the page."""

    text: str
    url: str
    title: str = ""
    error: str | None = None  # why the last action did not do what it said, told to the agent
    truncated: bool = False  # the page did not fit the observation budget
    elements: Mapping[str, Element] = field(default_factory=dict)  # by id, as shown in `text`


class ActionKind(enum.StrEnum):
    """The action grammar of WebArena-Lite agents; values are the spellings the model writes."""

    CLICK = "Click"
    RIGHT_CLICK = "Right Click"
    TYPE = "Type"
    SEARCH = "Search"
    HOVER = "Hover"
    SCROLL_UP = "Scroll Up"
    SCROLL_DOWN = "Scroll Down"
    PRESS_ENTER = "Press Enter"
    PRESS = "Press"  # a key or a combination, such as Control+a
    SWITCH_TAB = "Switch Tab"
    SELECT = "Select Dropdown Option"
    WAIT = "Wait"
    GO_BACK = "Go Backward"
    GO_FORWARD = "Go Forward"
    GOTO = "Goto"  # an address on the origins of the task
    EXIT = "Exit"


@dataclass(frozen=True, slots=True)
class Action:
    kind: ActionKind
    element_id: str | None = None
    value: str | None = None  # text to type, option, key, tab, address; the answer of EXIT


@dataclass(frozen=True, slots=True)
class ParseError:
    """A reply that holds no readable action. A value, so that no reply can raise."""

    reason: str  # told to the agent in the next turn


@dataclass(frozen=True, slots=True)
class Decision:
    """What a scripted expert says: a thought and the action that follows from it."""

    thought: str
    action: Action
    about: str = ""  # the words by which its task may have called it; see prompts.TaskReader


Expert = Generator[Decision, Observation, None]
"""A scripted solver of one episode: yields decisions, is sent the observation that follows each."""


# --- what was sampled, and what came of it -------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Completion:
    """One sampled reply, exactly as sampled: never decoded and encoded again for training."""

    token_ids: IntArray  # [C], the stop token included when one was sampled
    logp: FloatArray  # [C] under the untempered policy
    policy_version: IntArray  # [C]
    finish: FinishReason
    sampling_logp: FloatArray | None = None  # [C] as tempered and filtered, where it was sampled

    @property
    def behavior_logp(self) -> FloatArray:
        """Log-probabilities [C] under the distribution that the tokens were sampled from."""
        return self.logp if self.sampling_logp is None else self.sampling_logp


@dataclass(frozen=True, slots=True)
class Turn:
    """One exchange: the prompt as the policy saw it, its reply, and what the reply did."""

    prompt_ids: IntArray  # [P]
    completion: Completion
    reply: str  # the completion as text, for people
    action: Action | ParseError
    observation: Observation  # what the agent saw before it replied
    seconds: Mapping[str, float] = field(default_factory=dict)  # by phase: model, browser/act, ...
    picture: bytes | None = None  # JPEG of the page the agent saw, when asked for


class Outcome(enum.StrEnum):
    SUCCESS = "SUCCESS"
    FAILURE = "FAILURE"
    TRUNCATED = "TRUNCATED"  # the turn or token limit ended it
    INFRA = "INFRA"  # browser, site or evaluator fault: no reward


@dataclass(frozen=True, slots=True)
class Episode:
    task: Task
    intent: str  # as told by the task, or by the page when it started
    turns: tuple[Turn, ...]
    reward: float | None  # 0 or 1; None when the outcome is INFRA
    outcome: Outcome
    answer: str | None = None  # message of the EXIT action; None when the agent gave none
    seconds: float = 0.0
    note: str = ""  # what failed, when the outcome is INFRA
    last_picture: bytes | None = None  # JPEG of the page as the episode left it, when asked for
    truncated: bool = False  # the turn or token limit ended it, whatever its reward
    group: int = -1  # which draw of a training it belongs to; -1 outside of one
    sibling: int = 0  # which of its group it is
    update: int = -1  # update of a training, from 0, at which its group was scheduled; -1 outside


@dataclass(frozen=True, slots=True)
class Group:
    """Episodes of one task under one policy; only those with a reward count."""

    task: Task
    episodes: tuple[Episode, ...]


@dataclass(frozen=True, slots=True)
class ForestRows:
    """Token trees in depth-first order, padded to one shape.

    Token i of a row attends to token j of it if and only if `j <= i < ends[j]`. Padding tokens
    have `ends[i] = i + 1`, so that they see themselves alone. Response tokens are listed by index:
    token `targets[b, r]` is scored from the hidden state at its parent.
    """

    tokens: IntArray  # [B, L]
    positions: IntArray  # [B, L] depth of the token in its own path
    parents: IntArray  # [B, L] index of the previous token of the path; a root is its own parent
    ends: IntArray  # [B, L] one past the last descendant
    targets: IntArray  # [B, R] index in the row of each response token; 0 where weights are 0
    weights: FloatArray  # [B, R] share of the token in the objective; 0 at padding
    advantages: FloatArray  # [B, R]
    behaviour_logp: FloatArray  # [B, R] log-probability when sampled
    prox_logp: FloatArray  # [B, R] before the update (learn.proximal); until told, behaviour_logp


@dataclass(frozen=True, slots=True)
class PolicySnapshot:
    version: int  # optimizer updates behind these params
    params: Any  # pytree of arrays


@dataclass(frozen=True, slots=True)
class Rate:
    """A success rate over n episodes."""

    success_rate: float  # unweighted over tasks, which may have been attempted several times
    n: int
    ci95: tuple[float, float] = (0.0, 1.0)


@dataclass(frozen=True, slots=True)
class Spread:
    """How a quantity is distributed."""

    mean: float = 0.0
    p50: float = 0.0
    p90: float = 0.0
    max: float = 0.0


@dataclass(frozen=True, slots=True)
class EvalReport:
    success_rate: float  # unweighted over tasks
    n: int  # episodes with a reward
    ci95: tuple[float, float]  # of the score (Wilson); over tasks (bootstrap) if tried repeatedly
    by_site: Mapping[str, Rate]
    by_outcome: Mapping[str, int]
    mean_turns: float
    mean_response_tokens: float  # over all turns of all episodes
    seconds: float  # of playing, in all starts of the evaluation together
    episodes: tuple[Episode, ...]
    attempts: int = 1  # at each task
    pass_at_k: Mapping[int, Rate] = field(default_factory=dict)  # n counts tasks here
    by_max_turns: Mapping[int, Rate] = field(default_factory=dict)
    turns: Spread = Spread()  # of an episode
    response_tokens: Spread = Spread()  # of a turn
    episode_seconds: Spread = Spread()
    parse_error_rate: float = 0.0  # of turns: the reply could not be read
    invalid_action_rate: float = 0.0  # of turns: it could, and the page told an error
    busy: Mapping[str, float] = field(default_factory=dict)  # "browser", "engine": share in [0, 1]
    # Of an endpoint: "prompt_tokens", "completion_tokens" and "dollars", None without a price.
    usage: Mapping[str, float | None] = field(default_factory=dict)


# --- the protocols the rooms meet by -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message. `token_ids` is what was sampled for it, when a policy of ours said it."""

    role: Literal["system", "user", "assistant"]
    text: str
    token_ids: IntArray | None = None


@dataclass(frozen=True, slots=True)
class ReplyRequest:
    """All an agent may look at when it is asked for its next reply."""

    task: Task
    intent: str
    turn: int  # 0 is the first
    observation: Observation
    messages: Sequence[Message]
    prompt_ids: IntArray  # [P] the messages as tokens
    seed: int  # of the sampling of this reply


class Agent(Protocol):
    """Whoever answers: the policy behind the engine, a scripted expert, a remote model."""

    def reply(self, request: ReplyRequest) -> Completion:
        """Blocks until the reply is there. Raises InfraError when none can be had."""
        ...


@dataclass(frozen=True, slots=True)
class Start:
    intent: str
    observation: Observation
    # Of the browser, by phase; the same page may take any time.
    seconds: Mapping[str, float] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class Step:
    observation: Observation
    done: bool  # the world has ended the episode by itself
    # Of the browser, by phase; the same page may take any time.
    seconds: Mapping[str, float] = field(default_factory=dict, compare=False)


class Environment(Protocol):
    """One task in one live, isolated world. Every call is bounded in time or raises InfraError."""

    def start(self) -> Start: ...

    def step(self, action: Action) -> Step: ...

    def reward(self, answer: str | None) -> float:
        """0 or 1, from the state of the world as the episode left it."""
        ...

    def picture(self) -> bytes:
        """JPEG of the page."""
        ...

    def close(self) -> None: ...


class Suite(Protocol):
    """Tasks, and the worlds to do them in."""

    def names(self, split: Split) -> Sequence[str]:
        """What a run goes over: pages whose worlds are generated, or single tasks."""
        ...

    def task(self, name: str, split: Split, index: int) -> Task:
        """The index-th world of a page, or try at a task; no two have the same id."""
        ...

    def tasks(self, split: Split) -> Sequence[Task]:
        """All that are different."""
        ...

    def open(self, task: Task) -> Environment: ...

    def expert(self, task: Task, start: Start) -> Expert:
        """A scripted solver of the task. Raises KeyError when the suite has none for it."""
        ...

    def close(self) -> None: ...
