"""Dataclasses and protocols shared by all packages.

The dataclasses are frozen and contain only numpy arrays and builtins, except the params of
`PolicySnapshot`, so machines that run browsers need no accelerator library. All packages use these
letters for shapes:

    B rows, L tokens of a row, R response tokens of a row, V vocabulary, D model width,
    H query heads, K key-value heads, E head width, G group size, T turns, P prompt tokens,
    C response tokens.
"""

from __future__ import annotations

import enum
from collections.abc import Generator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int32]
FloatArray = npt.NDArray[np.float32]

Split = Literal["train", "test"]
DemoSource = Literal["expert", "policy"]
FinishReason = Literal["stop", "length"]


class InfraError(Exception):
    """Fault of a browser, site or evaluator, not of the agent; the episode gets no reward."""


# --- tasks -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Task:
    """Instruction, start page and evaluation of one problem on a website."""

    id: str  # identifier, unique over all suites: "miniwob/login-user/1007"
    suite: str  # name of the suite: "miniwob"
    sites: tuple[str, ...]  # sites to group success rates by; a MiniWoB++ task counts as a site
    intent: str  # instruction; empty if the suite reads it from the start page on reset
    start_url: str  # URL of the start page
    seed: int = 0  # seed of the site content, where the suite generates it
    storage_state: str | None = None  # path of a signed-in browser state; None starts signed out
    template: str = ""  # name of the template that the task is an instance of; empty: none
    eval: Mapping[str, Any] = field(default_factory=dict)  # evaluator specification of the suite


# --- observations and actions --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Element:
    """Element of a page that the agent can act on."""

    kind: str  # "button", "link", "textbox", "checkbox", "radio", "select", "item", ...
    name: str  # accessible name or text of the element
    value: str = ""  # text of a field, chosen option of a select, "on" or "off" of a checkbox
    # Bounding box in CSS pixels: x, y, width, height.
    box: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)


DIALOG_PREFIX = "the page said: "
"""Start of the text of an alert or confirm in `Observation.error`, after errors of the action."""


@dataclass(frozen=True, slots=True)
class Observation:
    """Text of a page as the policy reads it, with its elements."""

    text: str  # page in the format of `browser.observation_format`
    url: str  # URL of the page
    title: str = ""  # title of the page
    error: str | None = None  # error of the last action, part of the next prompt; None: no error
    truncated: bool = False  # whether the page exceeded the character budget
    elements: Mapping[str, Element] = field(default_factory=dict)  # elements by their id in `text`


class ActionKind(enum.StrEnum):
    """Actions of WebArena-Lite agents, Press and Goto; the values are what the policy writes."""

    CLICK = "Click"
    RIGHT_CLICK = "Right Click"
    TYPE = "Type"
    SEARCH = "Search"
    HOVER = "Hover"
    SCROLL_UP = "Scroll Up"
    SCROLL_DOWN = "Scroll Down"
    PRESS_ENTER = "Press Enter"
    PRESS = "Press"  # key or key combination, such as Control+a
    SWITCH_TAB = "Switch Tab"
    SELECT = "Select Dropdown Option"
    WAIT = "Wait"
    GO_BACK = "Go Backward"
    GO_FORWARD = "Go Forward"
    GOTO = "Goto"  # URL on the origins of the task
    EXIT = "Exit"


@dataclass(frozen=True, slots=True)
class Action:
    """Action of a turn, as parsed from a response."""

    kind: ActionKind  # type of the action
    element_id: str | None = None  # id of the target in the observation; None for page actions
    value: str | None = None  # text to type, option, key, tab, URL, or answer of EXIT


@dataclass(frozen=True, slots=True)
class ParseError:
    """Parse result of a response without a valid action; a value, so parsing never raises."""

    reason: str  # error message in the next prompt of the policy


@dataclass(frozen=True, slots=True)
class Decision:
    """Thought and action of a scripted expert."""

    thought: str  # reasoning that precedes the action in the demonstration
    action: Action  # action of the turn
    _: KW_ONLY
    intent_phrase: str = ""  # likely words of the intent for the target; see prompts.TaskQuoter
    is_mistake: bool = False  # injected error that the next decisions correct; not trained on


Expert = Generator[Decision, Observation, None]
"""Scripted solver of one episode: yields decisions and receives the observation after each."""


# --- completions, episodes and training batches --------------------------------------------------


@dataclass(frozen=True, slots=True)
class Completion:
    """Sampled response as tokens; training uses these ids and never encodes the text again."""

    token_ids: IntArray  # [C] response tokens, including the stop token if it was sampled
    logp: FloatArray  # [C] log-probabilities at temperature 1, without top-k and top-p
    policy_version: IntArray  # [C] policy version that sampled each token
    finish: FinishReason  # end of the response: "stop" token or "length" limit
    # [C] log-probabilities after temperature, top-k and top-p; None if equal to `logp`.
    sampling_logp: FloatArray | None = None
    is_mistake: bool = False  # injected error of an expert (`Decision.is_mistake`)

    @classmethod
    def unsampled(
        cls, token_ids: IntArray, finish: FinishReason = "stop", *, is_mistake: bool = False
    ) -> Completion:
        """Return a completion that no policy sampled: log-probabilities and versions are 0."""
        return cls(
            token_ids=token_ids,
            logp=np.zeros(len(token_ids), np.float32),
            policy_version=np.zeros(len(token_ids), np.int32),
            finish=finish,
            is_mistake=is_mistake,
        )

    @property
    def behavior_logp(self) -> FloatArray:
        """Log-probabilities [C] under the distribution that sampled the tokens."""
        return self.logp if self.sampling_logp is None else self.sampling_logp


@dataclass(frozen=True, slots=True)
class Turn:
    """Exchange of agent and page: prompt, response, action."""

    prompt_ids: IntArray  # [P] prompt tokens
    completion: Completion  # response tokens with their log-probabilities
    response_text: str  # decoded response
    action: Action | ParseError  # parsed action of the response, or the reason it has none
    observation: Observation  # observation before the response, the last one of the prompt
    seconds: Mapping[str, float] = field(default_factory=dict)  # wall time by phase: "model", ...
    screenshot: bytes | None = None  # JPEG of the page before the action; None unless enabled


class Outcome(enum.StrEnum):
    """End of an episode."""

    SUCCESS = "SUCCESS"  # reward of 1
    FAILURE = "FAILURE"  # reward of 0
    TRUNCATED = "TRUNCATED"  # end by the turn or token limit
    INFRA = "INFRA"  # fault of browser, site or evaluator: no reward


@dataclass(frozen=True, slots=True)
class Episode:
    """Turns of one attempt at a task, with its reward."""

    task: Task  # task of the episode
    intent: str  # instruction, from the task or from its start page
    turns: tuple[Turn, ...]  # turns in order
    reward: float | None  # 0 or 1; None if the outcome is INFRA
    outcome: Outcome  # end of the episode
    answer: str | None = None  # message of the EXIT action; None without one
    seconds: float = 0.0  # wall time of the episode
    infra_error: str = ""  # error message if the outcome is INFRA
    final_screenshot: bytes | None = None  # JPEG of the page at the end; None unless enabled
    truncated: bool = False  # whether the turn or token limit ended the episode, at any reward
    group: int = -1  # index of the group within a training run; -1 outside of training
    attempt: int = 0  # index within the group, or of the pass@k attempt
    update: int = -1  # training update, from 0, that scheduled the group; -1 outside of training
    # Contents of files about the episode by name, such as a network log; only from some suites.
    files: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Group:
    """Episodes of one task for group-relative advantages, which use only those with a reward."""

    task: Task  # task of all episodes
    episodes: tuple[Episode, ...]  # attempts of the group


@dataclass(frozen=True, slots=True)
class ForestRows:
    """Token trees in depth-first order, padded to one shape.

    Token i of a row attends to token j of it if and only if `j <= i < subtree_ends[j]`. Padding
    tokens have `subtree_ends[i] = i + 1`, so they attend only to themselves. Response tokens are
    listed by index: the hidden state at its parent scores token `target_indices[b, r]`.
    """

    tokens: IntArray  # [B, L] token ids
    positions: IntArray  # [B, L] depth of the token in its own path
    parents: IntArray  # [B, L] index of the previous token of the path; a root is its own parent
    subtree_ends: IntArray  # [B, L] index after the last descendant of the token
    target_indices: IntArray  # [B, R] row index of each response token; 0 at padding
    loss_weights: FloatArray  # [B, R] share of the token in the objective; 0 at padding
    advantages: FloatArray  # [B, R] advantage of the token
    behavior_logp: FloatArray  # [B, R] log-probability under the policy that sampled the token
    # [B, R] log-probability under the policy before the update; `behavior_logp` until computed
    # (learn.compute_prox_logp).
    prox_logp: FloatArray


@dataclass(frozen=True, slots=True)
class PolicySnapshot:
    """Params of one policy version."""

    version: int  # number of optimizer steps that produced the params
    params: Any  # pytree of arrays


@dataclass(frozen=True, slots=True)
class SuccessRate:
    """Success rate over n episodes, with its interval."""

    success_rate: float  # mean over tasks, each with equal weight for any number of attempts
    n: int  # number of episodes
    ci95: tuple[float, float] = (0.0, 1.0)  # 95 % confidence interval


@dataclass(frozen=True, slots=True)
class SummaryStats:
    """Mean, quantiles and maximum of a quantity."""

    mean: float = 0.0  # arithmetic mean
    p50: float = 0.0  # median
    p90: float = 0.0  # 90th percentile
    max: float = 0.0  # maximum


@dataclass(frozen=True, slots=True)
class EvalReport:
    """Results of one evaluation, with its episodes."""

    success_rate: float  # mean over tasks, each with equal weight
    n: int  # number of episodes with a reward
    # 95 % interval of the success rate: Wilson for one attempt per task, otherwise a bootstrap over
    # tasks.
    ci95: tuple[float, float]
    by_site: Mapping[str, SuccessRate]  # success rate by site
    by_outcome: Mapping[str, int]  # number of episodes by outcome
    mean_turns: float  # mean number of turns of an episode
    mean_response_tokens: float  # mean response length in tokens, over all turns of all episodes
    seconds: float  # wall time of the episodes, summed over all runs of a resumed evaluation
    episodes: tuple[Episode, ...]  # evaluated episodes
    attempts: int = 1  # number of attempts per task
    pass_at_k: Mapping[int, SuccessRate] = field(default_factory=dict)  # by k; n counts tasks
    by_max_turns: Mapping[int, SuccessRate] = field(default_factory=dict)  # by turn limit
    turns: SummaryStats = SummaryStats()  # number of turns per episode
    response_tokens: SummaryStats = SummaryStats()  # response length per turn, in tokens
    episode_seconds: SummaryStats = SummaryStats()  # wall time per episode
    parse_error_rate: float = 0.0  # fraction of turns with a parse error
    invalid_action_rate: float = 0.0  # fraction of turns with a parsed action that failed
    # Fractions in [0, 1]: "browser" of the wall time of all concurrent episodes; "engine": wall
    # time in which an agent waits for a response.
    utilization: Mapping[str, float] = field(default_factory=dict)
    # Usage of the chat endpoint: "prompt_tokens", "completion_tokens", "dollars" (None if the price
    # is unknown); empty without an endpoint.
    usage: Mapping[str, float | None] = field(default_factory=dict)


# --- protocols -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Message:
    """Chat message."""

    role: Literal["system", "user", "assistant"]  # author of the message
    text: str  # content of the message
    token_ids: IntArray | None = None  # [C] sampled tokens of a local policy; None: encode `text`


@dataclass(frozen=True, slots=True)
class AgentRequest:
    """Input of an agent for one turn."""

    task: Task  # task of the episode
    intent: str  # instruction, from the task or from its start page
    turn: int  # index of the turn, from 0
    observation: Observation  # current observation
    messages: Sequence[Message]  # prompt as chat messages
    prompt_ids: IntArray  # [P] prompt as tokens
    seed: int  # seed of the sampled response


class Agent(Protocol):
    """Source of responses: a policy on the engine, a scripted expert or a chat endpoint."""

    def respond(self, request: AgentRequest) -> Completion:
        """Return the response; block until it is complete.

        Raises:
            InfraError: the agent cannot produce a response.
        """
        ...


@dataclass(frozen=True, slots=True)
class ResetResult:
    """Result of `Environment.reset`."""

    intent: str  # instruction, from the task or from its start page
    observation: Observation  # first observation
    # Browser time by phase; not part of equality, because the time varies between equal pages.
    seconds: Mapping[str, float] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class StepResult:
    """Result of `Environment.step`."""

    observation: Observation  # observation after the action
    terminated: bool  # whether the environment has ended the episode
    # Browser time by phase; not part of equality, because the time varies between equal pages.
    seconds: Mapping[str, float] = field(default_factory=dict, compare=False)


class Environment(Protocol):
    """Isolated browser session for one task; every call returns in time or raises InfraError."""

    def reset(self) -> ResetResult:
        """Open the start page and return the first observation."""
        ...

    def step(self, action: Action) -> StepResult:
        """Execute the action and return the next observation."""
        ...

    def compute_reward(self, answer: str | None) -> float:
        """Return the reward, 0 or 1, for the final state of the site and the answer."""
        ...

    def screenshot(self) -> bytes:
        """Return a JPEG of the page."""
        ...

    def close(self) -> None:
        """Close the session."""
        ...


@runtime_checkable
class FileSource(Protocol):
    """Environment that has files to store with its episode, such as a network log."""

    def episode_files(self) -> Mapping[str, bytes]:
        """Return the contents by file name; called after `compute_reward`."""
        ...


class Suite(Protocol):
    """Set of tasks with their environments and experts."""

    def task_names(self, split: Split) -> Sequence[str]:
        """Return the names that a run samples: generators of tasks (MiniWoB++) or single tasks."""
        ...

    def task(self, name: str, split: Split, index: int) -> Task:
        """Return the index-th generated task or attempt of `name`; task ids are unique."""
        ...

    def tasks(self, split: Split) -> Sequence[Task]:
        """Return all distinct tasks of the split."""
        ...

    def make_env(self, task: Task) -> Environment:
        """Create the environment of the task."""
        ...

    def make_expert(self, task: Task, reset_result: ResetResult) -> Expert:
        """Create the scripted expert of the task.

        Raises:
            KeyError: the suite has no expert for the task.
        """
        ...

    def close(self) -> None:
        """Release the resources of the suite."""
        ...
