"""What episodes are played with: browsers, suite, tokenizer, engine, threads around them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

import jax
from jax.sharding import Mesh

from webagent_jax import policy, weights
from webagent_jax.agent import TEMPLATES, ChatTokenizer
from webagent_jax.browser import BrowserPool
from webagent_jax.config import RunConfig
from webagent_jax.generate import Engine
from webagent_jax.policy import ModelConfig, sharding
from webagent_jax.report.progress import Progress
from webagent_jax.rollout import Collector, EngineAgent, ExpertAgent, Job, Rules
from webagent_jax.suites.opening import open_suite
from webagent_jax.types import Episode, Outcome, PolicySnapshot


class Stage:
    """Opens what a run plays episodes with, and closes it again: use `with`.

    Args:
        cfg: of the run.
        progress: is told of every episode.
        snapshot: the policy to sample with; None when experts alone will play.
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
        with ExitStack() as opened:  # whatever fails, what was opened before it is closed
            self.pool = opened.enter_context(BrowserPool(cfg.browser))
            self.suite = open_suite(cfg.suite, cfg.browser, self.pool, progress.log)
            opened.callback(self.suite.close)
            self._sampler: Engine | None = None
            if model is not None and snapshot is not None:
                self._sampler = opened.enter_context(
                    Engine(
                        model,
                        snapshot.params,
                        slots=cfg.engine.slots,
                        max_tokens=cfg.engine.max_tokens,
                        seed=cfg.seed,
                        version=snapshot.version,
                        steps_per_dispatch=cfg.engine.steps_per_dispatch,
                        cache_bytes=cfg.engine.cache_bytes,
                        mesh=_engine_mesh(cfg.engine.tensor),
                    )
                )
            self._exit = opened.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._exit.close()

    @property
    def engine(self) -> Engine:
        """Raises ValueError where experts alone play."""
        if self._sampler is None:
            raise ValueError("this stage was opened without a policy")
        return self._sampler

    def rules(self, max_turns: int, pictures: bool = False) -> Rules:
        cfg = self._cfg
        return Rules(
            tokenizer=self.tokenizer,
            template=TEMPLATES[cfg.prompt.template],
            thinking=cfg.prompt.thinking,
            max_turns=max_turns,
            max_prompt_tokens=cfg.engine.max_tokens - cfg.rollout.max_new_tokens,
            timeout=cfg.rollout.episode_timeout,
            pictures=pictures,
        )

    def policy_agent(self, temperature: float) -> EngineAgent:
        """The policy behind the engine, sampling at that temperature."""
        rollout = self._cfg.rollout
        return EngineAgent(
            self.engine,
            self.tokenizer.stop_ids,
            max_new_tokens=rollout.max_new_tokens,
            temperature=temperature,
            top_p=rollout.top_p,
            top_k=rollout.top_k,
            timeout=rollout.episode_timeout,
        )

    def expert_agent(self) -> ExpertAgent:
        return ExpertAgent(self.suite, self.tokenizer, self._cfg.prompt.thinking)

    def play(
        self, jobs: Iterable[Job], on_episode: Callable[[Episode], None] = lambda episode: None
    ) -> list[Episode]:
        """Episodes in the order of the jobs; `on_episode` sees each as it ends, INFRA ones too."""

        def told(episode: Episode) -> None:
            self._progress.advance(
                0,
                success=None if episode.reward is None else episode.reward > 0,
                steps=len(episode.turns),
                tokens=sum(len(turn.completion.token_ids) for turn in episode.turns),
            )
            if episode.outcome is Outcome.INFRA:
                self._progress.log(f"INFRA {episode.task.id}: {episode.note}")

        collector = Collector(
            self.suite,
            contexts=self._cfg.rollout.contexts,
            infra_retries=self._cfg.rollout.infra_retries,
            on_try=told,
        )
        return collector.collect(jobs, on_episode)

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        """Meanwhile nobody plays, and the memory of the engine's cache is the learner's."""
        self.engine.release()
        try:
            yield
        finally:
            self.engine.resume()

    def update_policy(self, snapshot: PolicySnapshot) -> None:
        """Requests from now on are sampled by the new policy."""
        self.engine.update(snapshot.params, version=snapshot.version)


def _engine_mesh(tensor: int) -> Mesh | None:
    """Over so many devices of this host. Raises ShardingError when it has not as many."""
    if tensor == 1:
        return None
    return sharding.make_mesh(tensor=tensor, devices=jax.local_devices()[:tensor])


def load_policy(cfg: RunConfig, mesh: Mesh | None = None) -> tuple[ModelConfig, Any]:
    """The policy that the config names: model and params, cut over the mesh or on one device.

    Raises as `weights.load` does.
    """
    given = cfg.policy
    model, params = weights.load(
        given.path, given.dtype, remat=given.remat, attention=given.attention, mesh=mesh
    )
    return replace(model, unroll=given.unroll), params


def with_policy(cfg: RunConfig, path: str) -> RunConfig:
    """The same run, with other weights to begin with."""
    return replace(cfg, policy=replace(cfg.policy, path=path))
