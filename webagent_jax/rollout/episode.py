"""One episode as a plain loop: no threads, no device, no browser library."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from webagent_jax.agent import actions, prompts
from webagent_jax.agent.prompts import Template
from webagent_jax.agent.tokenizer import ChatTokenizer
from webagent_jax.types import (
    Action,
    ActionKind,
    Agent,
    Environment,
    Episode,
    InfraError,
    Observation,
    Outcome,
    ParseError,
    ReplyRequest,
    Step,
    Task,
    Turn,
)


@dataclass(frozen=True)
class Rules:
    """What holds for every episode of a run."""

    tokenizer: ChatTokenizer
    template: Template
    thinking: bool
    max_turns: int
    max_prompt_tokens: int  # a longer prompt ends the episode as TRUNCATED
    timeout: float  # seconds for the whole episode; beyond, it ends as INFRA
    pictures: bool = False  # keep a picture of every page the agent saw
    # Identical responses in a row, or unreadable ones, that end the episode as TRUNCATED; 0: never.
    max_repeats: int = 0


def run_episode(
    environment: Environment, agent: Agent, task: Task, rules: Rules, *, seed: int = 0
) -> Episode:
    """Plays one episode to its end.

    Never raises for faults of browser, site or evaluator, nor for a prompt or a reply that cannot
    be made into tokens or text: those end it as INFRA, without a reward.

    Args:
        environment: the world of the task, not yet started; the caller closes it.
        agent: whoever replies.
        task: what is to be done.
        rules: prompt form and limits.
        seed: of the sampling; turn k samples with a seed derived from it and k.
    """
    play = _Play(environment, agent, task, rules, seed)
    try:
        return play.run()
    except InfraError as fault:
        return play.finish(None, Outcome.INFRA, note=str(fault) or type(fault).__name__)


class _Play:
    """The state of one running episode."""

    def __init__(
        self, environment: Environment, agent: Agent, task: Task, rules: Rules, seed: int
    ) -> None:
        self._environment, self._agent, self._task, self._rules = environment, agent, task, rules
        self._seed = seed
        self._started = time.monotonic()
        self._turns: list[Turn] = []
        self._intent = task.intent
        self._answer: str | None = None
        self._seconds: dict[str, float] = {}

    def run(self) -> Episode:
        with self._timed("start"):
            start = self._environment.start()
        self._told("start", start.seconds)
        self._intent = start.intent
        observation = start.observation
        for _ in range(self._rules.max_turns):
            if time.monotonic() - self._started > self._rules.timeout:
                raise InfraError(f"the episode took more than {self._rules.timeout:.0f} s")
            turn = self._ask(observation)
            if turn is None:
                break
            step = self._carry_out(turn)
            self._turns.append(replace(turn, seconds=self._seconds))
            self._seconds = {}
            if step.done:
                return self._judge(Outcome.FAILURE)
            if self._is_stuck():
                break
            observation = step.observation
        return self._judge(Outcome.TRUNCATED)

    def finish(self, reward: float | None, outcome: Outcome, note: str = "") -> Episode:
        return Episode(
            task=self._task,
            intent=self._intent,
            turns=tuple(self._turns),
            reward=reward,
            outcome=outcome,
            answer=self._answer,
            seconds=time.monotonic() - self._started,
            note=note,
            last_picture=self._picture() if outcome is not Outcome.INFRA else None,
        )

    def _ask(self, observation: Observation) -> Turn | None:
        """The agent's next turn, not yet carried out; None when the prompt is too long for it."""
        rules = self._rules
        with self._timed("prompt"), faults_as_infra("the prompt cannot be made"):
            conversation = prompts.messages(
                rules.template, rules.thinking, self._intent, self._turns, observation
            )
            prompt_ids = rules.tokenizer.prompt_ids(conversation)
        if len(prompt_ids) > rules.max_prompt_tokens:
            return None
        picture = self._picture()
        request = ReplyRequest(
            task=self._task,
            intent=self._intent,
            turn=len(self._turns),
            observation=observation,
            messages=conversation,
            prompt_ids=prompt_ids,
            seed=_turn_seed(self._seed, len(self._turns)),
        )
        with self._timed("model"):
            completion = self._agent.reply(request)
        with faults_as_infra("the reply cannot be read"):
            reply = rules.tokenizer.decode(completion.token_ids)
            action = actions.parse(reply)
        return Turn(prompt_ids, completion, reply, action, observation, picture=picture)

    def _carry_out(self, turn: Turn) -> Step:
        """What the turn's action leads to. A reply that cannot be read changes nothing."""
        match turn.action:
            case ParseError(reason):
                return Step(replace(turn.observation, error=reason), done=False)
            case Action(kind=ActionKind.EXIT, value=answer):
                self._answer = answer
                return Step(turn.observation, done=True)
        with self._timed("browser"):
            step = self._environment.step(turn.action)
        self._told("browser", step.seconds)
        return step

    def _is_stuck(self) -> bool:
        """Return whether the last responses are all the same, or all without an action.

        The rule of the evaluation that WebAgent-R1 published: it compares whole responses.
        """
        limit = self._rules.max_repeats
        last = self._turns[-limit:]
        if limit == 0 or len(last) < limit:
            return False
        unreadable = all(isinstance(turn.action, ParseError) for turn in last)
        return unreadable or all(turn.reply == last[0].reply for turn in last)

    def _judge(self, otherwise: Outcome) -> Episode:
        with self._timed("reward"):
            reward = self._environment.reward(self._answer)
        episode = self.finish(reward, Outcome.SUCCESS if reward > 0 else otherwise)
        return replace(episode, truncated=otherwise is Outcome.TRUNCATED)

    def _picture(self) -> bytes | None:
        return self._environment.picture() if self._rules.pictures else None

    def _told(self, phase: str, parts: Mapping[str, float]) -> None:
        """What an environment says of a phase; its parts are in the whole already."""
        self._seconds |= {f"{phase}/{part}": seconds for part, seconds in parts.items()}

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        begun = time.monotonic()
        yield
        self._seconds[phase] = self._seconds.get(phase, 0.0) + time.monotonic() - begun


@contextmanager
def faults_as_infra(what: str) -> Iterator[None]:
    """Raises InfraError for any error inside, so that it ends one episode and not the run."""
    try:
        yield
    except Exception as error:
        raise InfraError(f"{what}: {error!r}") from error


def _turn_seed(seed: int, turn: int) -> int:
    return int(np.random.SeedSequence([seed, turn]).generate_state(1)[0] >> 1)
