"""What episodes are played with: browsers, suite, tokenizer, engine, threads around them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Self

import jax
import numpy as np
from jax.sharding import Mesh

from webagent_jax import policy
from webagent_jax.agent import TEMPLATES, ChatTokenizer, messages
from webagent_jax.browser import BrowserPool
from webagent_jax.config import EvalConfig, RolloutConfig, RunConfig
from webagent_jax.endpoint import ChatEndpoint, Usage
from webagent_jax.inference import Engine
from webagent_jax.policy import ModelConfig, sharding
from webagent_jax.rollout import (
    Collector,
    EndpointAgent,
    EngineAgent,
    ExpertAgent,
    Job,
    Rules,
)
from webagent_jax.suites.registry import open_suite
from webagent_jax.tracking.progress import Progress
from webagent_jax.types import Episode, IntArray, Observation, Outcome, PolicySnapshot


class Stage:
    """Opens what a run plays episodes with, and closes it again: use `with`.

    Args:
        cfg: of the run.
        progress: is told of every episode.
        snapshot: the policy to sample with; None when an endpoint or experts alone will play.
    """

    def __init__(
        self,
        cfg: RunConfig,
        progress: Progress,
        model: ModelConfig | None = None,
        snapshot: PolicySnapshot | None = None,
    ) -> None:
        self._cfg, self._progress = cfg, progress
        self._exit = ExitStack()
        self.tokenizer = ChatTokenizer(policy.directory(cfg.policy.path))
        self._endpoint: ChatEndpoint | None = None
        if cfg.policy.kind == "openai":
            self._endpoint = ChatEndpoint(cfg.policy.endpoint, log=progress.log)
        with ExitStack() as opened:  # whatever fails, what was opened before it is closed
            self.pool = opened.enter_context(BrowserPool(cfg.browser))
            self.suite = open_suite(cfg.suite, cfg.browser, self.pool, progress.log)
            opened.callback(self.suite.close)
            self._sampler: Engine | None = None
            if model is not None and snapshot is not None:
                self._sampler = opened.enter_context(
                    open_engine(cfg, self.tokenizer, model, snapshot)
                )
            self._exit = opened.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()

    @property
    def engine(self) -> Engine:
        """Raises ValueError where an endpoint or experts alone play."""
        if self._sampler is None:
            raise ValueError("this stage was opened without a policy")
        return self._sampler

    @property
    def contexts(self) -> int:
        """Episodes that are played at once."""
        return self._cfg.rollout.contexts

    def rules(self, max_turns: int, *, evaluation: bool = False) -> Rules:
        """Return the rules of an evaluation, or of training episodes and demonstrations."""
        cfg = self._cfg
        return Rules(
            tokenizer=self.tokenizer,
            template=TEMPLATES[cfg.prompt.template],
            thinking=cfg.prompt.thinking,
            max_turns=max_turns,
            max_prompt_tokens=cfg.engine.max_tokens - self._sampling(evaluation).max_new_tokens,
            timeout=cfg.rollout.episode_timeout,
            max_repeats=cfg.eval.max_repeats if evaluation else 0,
        )

    @property
    def usage(self) -> Usage | None:
        """What the endpoint did so far; None where none replies."""
        return None if self._endpoint is None else self._endpoint.usage

    def policy_agent(self, *, evaluation: bool = False) -> EngineAgent | EndpointAgent:
        """Return an agent that samples from the policy by the options of rollouts or evaluation."""
        sampling, timeout = self._sampling(evaluation), self._cfg.rollout.episode_timeout
        if self._endpoint is not None:
            return EndpointAgent(
                self._endpoint,
                self.tokenizer,
                max_new_tokens=sampling.max_new_tokens,
                temperature=sampling.temperature,
                top_p=sampling.top_p,
                timeout=timeout,
            )
        return EngineAgent(
            self.engine,
            self.tokenizer.stop_ids,
            max_new_tokens=sampling.max_new_tokens,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            timeout=timeout,
        )

    def _sampling(self, evaluation: bool) -> RolloutConfig | EvalConfig:
        """Return the options that responses are sampled with."""
        rollout, evaluated = self._cfg.rollout, self._cfg.eval
        if not evaluation:
            return rollout
        return replace(evaluated, max_new_tokens=evaluated.max_new_tokens or rollout.max_new_tokens)

    def expert_agent(self) -> ExpertAgent:
        return ExpertAgent(self.suite, self.tokenizer, self._cfg.prompt.thinking)

    def play(
        self, jobs: Iterable[Job], on_episode: Callable[[Episode], None] = lambda episode: None
    ) -> list[Episode]:
        """Episodes in the order of the jobs; `on_episode` sees each as it ends, INFRA ones too."""
        return self.collector().collect(jobs, on_episode)

    def collector(self) -> Collector:
        """Plays in the worlds of this stage; the progress is told of every try."""

        def told(episode: Episode) -> None:
            self._progress.advance(
                0,
                success=None if episode.reward is None else episode.reward > 0,
                steps=len(episode.turns),
                tokens=sum(len(turn.completion.token_ids) for turn in episode.turns),
            )
            if episode.outcome is Outcome.INFRA:
                self._progress.log(f"INFRA {episode.task.id}: {episode.note}")

        return Collector(
            self.suite,
            contexts=self._cfg.rollout.contexts,
            infra_retries=self._cfg.rollout.infra_retries,
            on_try=told,
        )

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        """Meanwhile nobody plays, and the memory of the engine's cache is the learner's."""
        self.engine.release()
        try:
            yield
        finally:
            self.engine.resume()

    def update_policy(self, snapshot: PolicySnapshot) -> None:
        """What is sampled from now on, the rest of running replies too, is the new policy's."""
        self.engine.update(snapshot.params, version=snapshot.version, running="recompute")


def open_engine(
    cfg: RunConfig, tokenizer: ChatTokenizer, model: ModelConfig, snapshot: PolicySnapshot
) -> Engine:
    """Return an engine with the options of the run.

    Raises:
        ShardingError: this process has fewer devices than `engine.tensor`.
    """
    return Engine(
        model,
        snapshot.params,
        slots=cfg.engine.slots,
        max_tokens=cfg.engine.max_tokens,
        seed=cfg.seed,
        version=snapshot.version,
        steps_per_dispatch=cfg.engine.steps_per_dispatch,
        cache_bytes=cfg.engine.cache_bytes,
        mesh=_engine_mesh(cfg.engine.tensor),
        preamble=_preamble(cfg, tokenizer),
    )


def _engine_mesh(tensor: int) -> Mesh | None:
    """Over so many devices of this host. Raises ShardingError when it has not as many."""
    if tensor == 1:
        return None
    return sharding.make_mesh(tensor=tensor, devices=jax.local_devices()[:tensor])


def _preamble(cfg: RunConfig, tokenizer: ChatTokenizer) -> IntArray:
    """The token ids that the prompts of all tasks begin with."""
    template, thinking = TEMPLATES[cfg.prompt.template], cfg.prompt.thinking
    page = Observation("", "")
    first, *others = (
        tokenizer.prompt_ids(messages(template, thinking, intent, (), page))
        for intent in ("A", "b", "7", "(", '"')
    )
    shortest = min(len(first), *map(len, others))
    alike = np.all([ids[:shortest] == first[:shortest] for ids in others], axis=0)
    return first[: int(np.logical_and.accumulate(alike).sum())]
