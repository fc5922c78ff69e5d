"""Who replies in an episode: the policy behind the engine, an endpoint, or a scripted expert."""

from __future__ import annotations

from concurrent.futures import CancelledError, Future
from typing import Protocol

import numpy as np

from webagent_jax.agent import prompts
from webagent_jax.agent.tokenizer import ChatTokenizer
from webagent_jax.endpoint import ChatEndpoint, ChatRequest
from webagent_jax.rollout.episode import faults_as_infra
from webagent_jax.types import (
    Completion,
    Expert,
    FinishReason,
    InfraError,
    IntArray,
    ReplyRequest,
    Start,
    Suite,
)


class Sampler(Protocol):
    """What an EngineAgent needs of `generate.Engine`."""

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
    ) -> Future[Completion]: ...


class EngineAgent:
    """The policy: every reply is one request to the engine."""

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

    def reply(self, request: ReplyRequest) -> Completion:
        """Raises InfraError when no reply comes in time; errors of the engine pass through."""
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
        except TimeoutError as late:
            future.cancel()
            raise InfraError(f"the engine gave no reply within {self._timeout:.0f} s") from late
        except CancelledError as cancelled:
            raise InfraError("the request was cancelled") from cancelled


class EndpointAgent:
    """A chat model somewhere else; its replies are text, encoded as if sampled.

    What tells no log-probabilities cannot be trained by them: they are 0.
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

    def reply(self, request: ReplyRequest) -> Completion:
        """Raises InfraError when no reply comes in time, ConfigError when none ever will."""
        reply = self._endpoint.chat(
            ChatRequest(
                messages=request.messages,
                max_tokens=self._max_new_tokens,
                temperature=self._temperature,
                top_p=self._top_p,
                seed=request.seed,
            ),
            self._timeout,
        )
        encoded = _unsampled(self._tokenizer, reply.text, reply.finish)
        prompt, completion = reply.prompt_tokens, reply.completion_tokens
        self._endpoint.spend(
            len(request.prompt_ids) if prompt is None else prompt,
            len(encoded.token_ids) if completion is None else completion,
        )
        return encoded


class ExpertAgent:
    """A scripted expert in the place of the policy; its replies are text, encoded as if sampled.

    The script is made at the first turn, since only then the page is there to look at.
    """

    def __init__(self, suite: Suite, tokenizer: ChatTokenizer, thinking: bool) -> None:
        self._suite, self._tokenizer, self._thinking = suite, tokenizer, thinking
        self._script: Expert | None = None
        self._reader = prompts.TaskReader("")

    def reply(self, request: ReplyRequest) -> Completion:
        """Raises InfraError when the expert is at its wits' end."""
        try:
            if self._script is None:
                self._script = self._suite.expert(
                    request.task, Start(request.intent, request.observation)
                )
                self._reader = prompts.TaskReader(request.intent)
                decision = next(self._script)
            else:
                decision = self._script.send(request.observation)
        except (StopIteration, LookupError, ValueError) as lost:
            raise InfraError(f"the expert of {request.task.id} is lost: {lost!r}") from lost
        thought = self._reader.thought(decision.about, decision.thought)
        text = prompts.reply_text(thought, decision.action, self._thinking)
        return _unsampled(self._tokenizer, text, "stop")


def _unsampled(tokenizer: ChatTokenizer, text: str, finish: FinishReason) -> Completion:
    """Return the completion of a response that no policy of ours sampled.

    Raises InfraError if it cannot be tokenized.
    """
    encode = tokenizer.encode_reply if finish == "stop" else tokenizer.encode
    with faults_as_infra("the reply cannot be tokenized"):
        ids = encode(text)
    return Completion(
        token_ids=ids,
        logp=np.zeros(len(ids), np.float32),
        policy_version=np.zeros(len(ids), np.int32),
        finish=finish,
    )
