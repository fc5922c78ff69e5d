"""Agents: policy behind the engine, chat endpoint, or scripted expert."""

from __future__ import annotations

from concurrent.futures import CancelledError, Future
from dataclasses import replace
from typing import Protocol

import numpy as np

from webagent_jax import expert_steps, seeds
from webagent_jax.agent import prompts
from webagent_jax.agent.tokenizer import ChatTokenizer
from webagent_jax.config import ConfigError, ExpertThoughts
from webagent_jax.endpoint import ChatEndpoint, ChatRequest
from webagent_jax.rollout.episode import faults_as_infra
from webagent_jax.seeds import RandomStream
from webagent_jax.suites.user_code import convert_user_errors
from webagent_jax.types import (
    AgentRequest,
    Completion,
    Expert,
    FinishReason,
    InfraError,
    IntArray,
    ResetResult,
    Task,
)


class Sampler(Protocol):
    """Interface of `inference.Engine` that EngineAgent uses."""

    def submit(
        self,
        prompt_ids: IntArray,
        *,
        max_new_tokens: int,
        temperature: float,
        top_p: float,
        top_k: int,
        seed: int,
        stop_ids: tuple[int, ...],
    ) -> Future[Completion]:
        """Queue a prompt and return the future of its completion."""
        ...


class EngineAgent:
    """Agent that samples each response with one engine request."""

    def __init__(
        self,
        sampler: Sampler,
        stop_ids: tuple[int, ...],
        *,
        max_new_tokens: int,
        temperature: float,
        top_p: float = 1.0,
        top_k: int = 0,
        timeout: float = 120.0,
    ) -> None:
        self._sampler = sampler
        self._stop_ids = stop_ids
        self._max_new_tokens = max_new_tokens
        self._temperature, self._top_p, self._top_k = temperature, top_p, top_k
        self._timeout = timeout

    def respond(self, request: AgentRequest) -> Completion:
        """Return the sampled completion; errors of the engine propagate.

        Raises:
            InfraError: the engine did not respond in time, or the request was canceled.
        """
        future = self._sampler.submit(
            request.prompt_ids,
            max_new_tokens=self._max_new_tokens,
            temperature=self._temperature,
            top_p=self._top_p,
            top_k=self._top_k,
            seed=request.seed,
            stop_ids=self._stop_ids,
        )
        try:
            return future.result(timeout=self._timeout)
        except TimeoutError as error:
            # The engine removes canceled requests from its slots.
            future.cancel()
            raise InfraError(f"the engine gave no response within {self._timeout:.0f} s") from error
        except CancelledError as error:
            raise InfraError("the request was canceled") from error


class EndpointAgent:
    """Agent that requests each response from a chat endpoint and encodes its text.

    The log-probabilities are NaN, because endpoints do not report them: RL cannot use these
    episodes, and reports show no probabilities.
    """

    def __init__(
        self,
        endpoint: ChatEndpoint,
        tokenizer: ChatTokenizer,
        *,
        max_new_tokens: int,
        temperature: float,
        top_p: float = 1.0,
        timeout: float = 120.0,
    ) -> None:
        self._endpoint, self._tokenizer = endpoint, tokenizer
        self._max_new_tokens = max_new_tokens
        self._temperature, self._top_p = temperature, top_p
        self._timeout = timeout

    def respond(self, request: AgentRequest) -> Completion:
        """Return the encoded response of the endpoint.

        Raises:
            InfraError: the endpoint did not respond in time.
            ConfigError: the endpoint cannot respond to any request.
        """
        response = self._endpoint.chat(
            ChatRequest(
                messages=request.messages,
                max_tokens=self._max_new_tokens,
                temperature=self._temperature,
                top_p=self._top_p,
                seed=request.seed,
            ),
            self._timeout,
        )
        encoded = _encode_completion(self._tokenizer, response.text, response.finish)
        num_prompt, num_completion = response.prompt_tokens, response.completion_tokens
        # Endpoints without usage counts are counted with the tokenizer of the policy.
        self._endpoint.add_usage(
            len(request.prompt_ids) if num_prompt is None else num_prompt,
            len(encoded.token_ids) if num_completion is None else num_completion,
        )
        return replace(encoded, logp=np.full(len(encoded.token_ids), np.nan, np.float32))


class ExpertSource(Protocol):
    """Part of `Suite` that ExpertAgent uses; the recording of a person implements it as well."""

    def make_expert(self, task: Task, reset_result: ResetResult) -> Expert:
        """Create the expert of the task.

        Raises:
            KeyError: the task has no expert.
        """
        ...


class ExpertAgent:
    """Agent that follows an expert; its responses are encoded as if sampled.

    The expert is created at the first turn, because it needs the first observation.

    Args:
        source: creates the expert of a task.
        tokenizer: tokenizer of the policy.
        thinking: whether responses contain the thoughts.
        thoughts: kind of the thoughts.
        mistake_rate: probability of a mistake before a decision, and of its correction after it.
    """

    def __init__(
        self,
        source: ExpertSource,
        tokenizer: ChatTokenizer,
        *,
        thinking: bool,
        thoughts: ExpertThoughts = "short",
        mistake_rate: float = 0.0,
    ) -> None:
        self._source, self._tokenizer, self._thinking = source, tokenizer, thinking
        self._thoughts, self._mistake_rate = thoughts, mistake_rate
        self._expert: Expert | None = None
        self._quoter = prompts.TaskQuoter("")

    def respond(self, request: AgentRequest) -> Completion:
        """Return the next response of the expert.

        Raises:
            ConfigError: the task has no expert, or its code has an error.
            InfraError: the expert ended, or it failed on the observation.
        """
        is_first = self._expert is None
        name = f"the expert of {request.task.id}"
        with convert_user_errors(name):
            if self._expert is None:
                self._expert = self._make_expert(request)
                self._quoter = prompts.TaskQuoter(request.intent)
            try:
                # An expert is a generator: next() returns its first decision, send() the others.
                decision = (
                    next(self._expert) if is_first else self._expert.send(request.observation)
                )
            except ConfigError:
                raise
            except StopIteration as error:
                raise InfraError(
                    f"{name} ended, but the episode did not: end it with finish() or answer(), or "
                    "set SiteTask.is_done"
                ) from error
            except (LookupError, ValueError) as error:
                raise InfraError(f"{name} failed: {error!r}") from error
            thought = self._quoter.thought(decision.intent_phrase, decision.thought)
            text = prompts.format_response(thought, decision.action, self._thinking)
        completion = _encode_completion(self._tokenizer, text, "stop")
        return replace(completion, is_mistake=decision.is_mistake)

    def _make_expert(self, request: AgentRequest) -> Expert:
        page, task = request.observation, request.task
        try:
            expert = self._source.make_expert(task, ResetResult(request.intent, page))
        except KeyError as error:
            raise ConfigError(
                f"{request.task.id} has no expert: select tasks with experts (suite.tasks), record "
                "demonstrations (webagent record), or collect them with a policy "
                "(--demo_source=policy)"
            ) from error
        if self._mistake_rate:
            # A mistake depends on the task only, so that collecting again repeats it.
            rng = seeds.make_generator(0, RandomStream.MISTAKES, *task.id.encode())
            expert = expert_steps.with_mistakes(expert, page, self._mistake_rate, rng)
        return expert_steps.with_thoughts(expert, page, request.intent, self._thoughts)


def _encode_completion(tokenizer: ChatTokenizer, text: str, finish: FinishReason) -> Completion:
    """Return a response text as a completion with log-probabilities and policy versions of 0.

    Raises:
        InfraError: the text cannot be tokenized.
    """
    # A response that was cut at the length limit ends without the stop token.
    encode = tokenizer.encode_response if finish == "stop" else tokenizer.encode
    with faults_as_infra("the response cannot be tokenized"):
        return Completion.unsampled(encode(text), finish)
