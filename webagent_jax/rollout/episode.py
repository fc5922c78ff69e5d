"""Episode loop, independent of threads, devices and browser libraries."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

import numpy as np

from webagent_jax.agent import actions, prompts
from webagent_jax.agent.prompts import PromptFormat
from webagent_jax.agent.tokenizer import ChatTokenizer
from webagent_jax.types import (
    Action,
    ActionKind,
    Agent,
    AgentRequest,
    Environment,
    Episode,
    FileSource,
    InfraError,
    Observation,
    Outcome,
    ParseError,
    StepResult,
    Task,
    Turn,
)


@dataclass(frozen=True)
class EpisodeConfig:
    """Prompt format and limits of all episodes of a run."""

    tokenizer: ChatTokenizer
    prompt: PromptFormat
    max_turns: int
    max_prompt_tokens: int  # limit; a longer prompt ends the episode as TRUNCATED
    timeout: float  # seconds per episode; a longer one ends as INFRA
    keep_screenshots: bool = False  # store a screenshot of every observed page
    # Consecutive identical or unparsable responses that end the episode as TRUNCATED; 0: no limit.
    max_repeats: int = 0


def run_episode(
    environment: Environment, agent: Agent, task: Task, config: EpisodeConfig, *, seed: int = 0
) -> Episode:
    """Run one episode to its end.

    Faults of browser, site or evaluator do not raise, nor do prompts and responses that cannot be
    tokenized or decoded: the episode ends as INFRA, without a reward.

    Args:
        environment: environment of the task before its reset; the caller closes it.
        agent: responds in each turn.
        task: task to solve.
        config: prompt format and limits.
        seed: seed of the sampling; turn k uses a seed derived from it and k.
    """
    runner = _EpisodeRunner(environment, agent, task, config, seed)
    try:
        return runner.run()
    except InfraError as error:
        return runner.finish(None, Outcome.INFRA, infra_error=str(error) or type(error).__name__)


class _EpisodeRunner:
    """State of a running episode."""

    def __init__(
        self, environment: Environment, agent: Agent, task: Task, config: EpisodeConfig, seed: int
    ) -> None:
        self._environment, self._agent, self._task, self._config = environment, agent, task, config
        self._seed = seed
        self._start_time = time.monotonic()
        self._turns: list[Turn] = []
        self._intent = task.intent
        self._answer: str | None = None
        self._seconds: dict[str, float] = {}

    def run(self) -> Episode:
        with self._measure("start"):
            reset = self._environment.reset()
        self._add_seconds("start", reset.seconds)
        self._intent = reset.intent
        observation = reset.observation
        for _ in range(self._config.max_turns):
            # Checked between turns only: browser calls and responses have their own timeouts.
            if time.monotonic() - self._start_time > self._config.timeout:
                raise InfraError(f"the episode took more than {self._config.timeout:.0f} s")
            turn = self._next_turn(observation)
            # The prompt is too long; the pages so far still receive a reward.
            if turn is None:
                break
            step = self._execute(turn)
            # The seconds since the previous turn; the first turn includes the reset.
            self._turns.append(replace(turn, seconds=self._seconds))
            self._seconds = {}
            # The outcome for a reward of 0.
            if step.terminated:
                return self._finish_with_reward(Outcome.FAILURE)
            if self._is_stuck():
                break
            observation = step.observation
        return self._finish_with_reward(Outcome.TRUNCATED)

    def finish(
        self,
        reward: float | None,
        outcome: Outcome,
        infra_error: str = "",
        screenshot: bytes | None = None,
    ) -> Episode:
        return Episode(
            task=self._task,
            intent=self._intent,
            turns=tuple(self._turns),
            reward=reward,
            outcome=outcome,
            answer=self._answer,
            seconds=time.monotonic() - self._start_time,
            infra_error=infra_error,
            final_screenshot=screenshot,
        )

    def _next_turn(self, observation: Observation) -> Turn | None:
        """Return the next turn, its action not executed; None if the prompt is too long."""
        config = self._config
        with self._measure("prompt"), faults_as_infra("the prompt cannot be built"):
            conversation = prompts.build_messages(
                config.prompt, self._intent, self._turns, observation
            )
            prompt_ids = config.tokenizer.prompt_ids(conversation)
        if len(prompt_ids) > config.max_prompt_tokens:
            return None
        # Before the response, so it is the page of the observation.
        screenshot = self._take_screenshot()
        request = AgentRequest(
            task=self._task,
            intent=self._intent,
            turn=len(self._turns),
            observation=observation,
            messages=conversation,
            prompt_ids=prompt_ids,
            seed=_turn_seed(self._seed, len(self._turns)),
        )
        with self._measure("model"):
            completion = self._agent.respond(request)
        with faults_as_infra("the response cannot be decoded"):
            response = config.tokenizer.decode(completion.token_ids)
            action = actions.parse(response)
        return Turn(prompt_ids, completion, response, action, observation, screenshot=screenshot)

    def _execute(self, turn: Turn) -> StepResult:
        """Execute the action of a turn; a parse error becomes the error of the same observation."""
        match turn.action:
            case ParseError(reason):
                # The page is not touched; the next prompt contains the reason.
                return StepResult(replace(turn.observation, error=reason), terminated=False)
            case Action(kind=ActionKind.EXIT, value=answer):
                # None means that there was no exit action.
                self._answer = answer or ""
                return StepResult(turn.observation, terminated=True)
        with self._measure("browser"):
            step = self._environment.step(turn.action)
        self._add_seconds("browser", step.seconds)
        return step

    def _is_stuck(self) -> bool:
        """Return whether the last responses are all the same, or all without an action.

        The published evaluation of WebAgent-R1 has the same rule: it compares complete responses.
        """
        limit = self._config.max_repeats
        turns = self._turns[-limit:]
        if limit == 0 or len(turns) < limit:
            return False
        all_unparsable = all(isinstance(turn.action, ParseError) for turn in turns)
        return all_unparsable or all(turn.response_text == turns[0].response_text for turn in turns)

    def _finish_with_reward(self, outcome: Outcome) -> Episode:
        """Return the episode with its reward; `outcome` applies if the reward is 0."""
        # Before the reward, because evaluators open other pages in the same tab.
        screenshot = self._take_screenshot()
        with self._measure("reward"):
            reward = self._environment.compute_reward(self._answer)
        # `truncated` is separate: a truncated episode can have a reward.
        episode = self.finish(
            reward, Outcome.SUCCESS if reward > 0 else outcome, screenshot=screenshot
        )
        environment = self._environment
        return replace(
            episode,
            truncated=outcome is Outcome.TRUNCATED,
            files=environment.episode_files() if isinstance(environment, FileSource) else {},
        )

    def _take_screenshot(self) -> bytes | None:
        if not self._config.keep_screenshots:
            return None
        # The episode and its reward do not depend on it: a font that never loads delays it forever.
        with suppress(InfraError):
            return self._environment.screenshot()
        return None

    def _add_seconds(self, phase: str, parts: Mapping[str, float]) -> None:
        """Add the timings that the environment reports for a phase; `phase` includes them."""
        self._seconds |= {f"{phase}/{part}": seconds for part, seconds in parts.items()}

    @contextmanager
    def _measure(self, phase: str) -> Iterator[None]:
        start = time.monotonic()
        yield
        self._seconds[phase] = self._seconds.get(phase, 0.0) + time.monotonic() - start


@contextmanager
def faults_as_infra(message: str) -> Iterator[None]:
    """Convert any error to InfraError, so that it ends one episode and not the run.

    Args:
        message: message of the InfraError, before the error.
    """
    try:
        yield
    except Exception as error:
        raise InfraError(f"{message}: {error!r}") from error


def _turn_seed(seed: int, turn: int) -> int:
    # In [0, 2^31), as in `seeds.derive_seed`.
    return int(np.random.SeedSequence([seed, turn]).generate_state(1)[0] >> 1)
