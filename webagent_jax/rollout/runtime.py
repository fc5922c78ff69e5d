"""Resources of rollouts: browsers, suite, tokenizer, engine or endpoint, and worker threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Self

import numpy as np

from webagent_jax import policy
from webagent_jax.agent import TEMPLATES, ChatTokenizer, PromptFormat, build_messages
from webagent_jax.browser import BrowserPool
from webagent_jax.config import ConfigError, EvalConfig, RolloutConfig, RunConfig
from webagent_jax.endpoint import ChatEndpoint, Usage
from webagent_jax.inference import Engine
from webagent_jax.inference.engine_shapes import EngineShapes
from webagent_jax.policy import ModelConfig, prompt_record, sharding
from webagent_jax.rollout import (
    Collector,
    EndpointAgent,
    EngineAgent,
    EpisodeConfig,
    ExpertAgent,
    Job,
)
from webagent_jax.suites.registry import make_suite
from webagent_jax.tracking.progress import Progress
from webagent_jax.types import Episode, IntArray, Observation, Outcome, PolicySnapshot


class RolloutRuntime:
    """Owner of the browsers, suite and engine that run episodes; a context manager.

    Args:
        cfg: config of the run.
        progress: receives every run of an episode.
        model: config of the policy; None without an engine.
        snapshot: policy to sample from; None if only an endpoint or experts respond.
        headless: whether the browsers run without windows.
    """

    def __init__(
        self,
        cfg: RunConfig,
        progress: Progress,
        model: ModelConfig | None = None,
        snapshot: PolicySnapshot | None = None,
        *,
        headless: bool = True,
    ) -> None:
        self._cfg, self._progress = cfg, progress
        self.tokenizer = ChatTokenizer(policy.tokenizer_dir(cfg.policy.path))
        self._prompt = prompt_format(prompt_record.with_template(cfg))
        self._endpoint: ChatEndpoint | None = None
        if cfg.policy.kind == "openai":
            self._endpoint = ChatEndpoint(cfg.policy.endpoint, log=progress.log)
        # An error closes the resources opened before it.
        with ExitStack() as stack:
            self.pool = stack.enter_context(BrowserPool(cfg.browser, headless=headless))
            self.suite = make_suite(cfg.suite, cfg.browser, self.pool, progress.log)
            stack.callback(self.suite.close)
            self._engine: Engine | None = None
            if model is not None and snapshot is not None:
                self._engine = stack.enter_context(
                    make_engine(cfg, self.tokenizer, model, snapshot)
                )
            # Closed in reverse order: engine, suite, browsers.
            self._exit_stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._exit_stack.close()

    @property
    def engine(self) -> Engine:
        """Engine that samples from the policy.

        Raises:
            ValueError: only an endpoint or experts respond.
        """
        if self._engine is None:
            raise ValueError("this runtime has no engine: create it with a model and a snapshot")
        return self._engine

    @property
    def max_concurrent_episodes(self) -> int:
        """Number of episodes that run at the same time."""
        return self._cfg.rollout.max_concurrent_episodes

    def episode_config(self, max_turns: int, *, evaluation: bool = False) -> EpisodeConfig:
        """Return the config of episodes.

        Args:
            max_turns: limit of turns per episode.
            evaluation: use the options of evaluation instead of those of rollouts.
        """
        cfg = self._cfg
        return EpisodeConfig(
            tokenizer=self.tokenizer,
            prompt=self._prompt,
            max_turns=max_turns,
            # The engine needs space for a response of full length after the prompt.
            max_prompt_tokens=cfg.engine.max_model_len
            - sampling_options(cfg, evaluation=evaluation).max_new_tokens,
            timeout=cfg.rollout.episode_timeout,
            max_repeats=cfg.eval.max_repeats if evaluation else 0,
        )

    @property
    def usage(self) -> Usage | None:
        """Requests and tokens of the endpoint so far; None without an endpoint."""
        return None if self._endpoint is None else self._endpoint.usage

    def policy_agent(self, *, evaluation: bool = False) -> EngineAgent | EndpointAgent:
        """Return an agent that samples with the options of rollouts, or of evaluation."""
        source: Engine | ChatEndpoint = self._endpoint or self.engine
        return make_policy_agent(self._cfg, self.tokenizer, source, evaluation=evaluation)

    def expert_agent(self) -> ExpertAgent:
        """Return an agent that follows the scripted expert of its task."""
        return ExpertAgent(
            self.suite,
            self.tokenizer,
            thinking=self._cfg.prompt.thinking,
            thoughts=self._cfg.bc.expert_thoughts,
            mistake_rate=self._cfg.bc.mistake_rate,
        )

    def run(
        self, jobs: Iterable[Job], on_episode: Callable[[Episode], None] = lambda episode: None
    ) -> list[Episode]:
        """Run all jobs and return their episodes in the order of the jobs.

        Args:
            jobs: drawn as threads become free.
            on_episode: called for each completed episode, including INFRA.
        """
        return self.collector().run_jobs(jobs, on_episode)

    def collector(self) -> Collector:
        """Return a collector on this suite that reports every run to the progress."""
        if self._engine is not None:
            # The time limit of the first episodes does not include compilations.
            self._engine.warmup()

        def report(episode: Episode) -> None:
            # n is 0, because the phase may count updates instead of episodes.
            self._progress.advance(
                0,
                success=None if episode.reward is None else episode.reward > 0,
                tokens=sum(len(turn.completion.token_ids) for turn in episode.turns),
            )
            if episode.outcome is Outcome.INFRA:
                self._progress.log(f"INFRA {episode.task.id}: {episode.infra_error}")

        return Collector(
            self.suite,
            max_concurrent_episodes=self._cfg.rollout.max_concurrent_episodes,
            infra_retries=self._cfg.rollout.infra_retries,
            on_run=report,
        )

    @contextmanager
    def engine_asleep(self) -> Iterator[None]:
        """Release the memory of the engine's cache within the context; running requests wait."""
        self.engine.sleep()
        try:
            yield
        finally:
            self.engine.wake_up()

    def update_policy(self, snapshot: PolicySnapshot) -> None:
        """Sample from a new policy from now on, including the rest of running responses."""
        # The KV cache of running requests belongs to the old params, so it is recomputed.
        self.engine.update_weights(snapshot.params, version=snapshot.version, in_flight="recompute")


def sampling_options(cfg: RunConfig, *, evaluation: bool) -> RolloutConfig | EvalConfig:
    """Return the sampling options of rollouts, or of evaluation."""
    if not evaluation:
        return cfg.rollout
    return replace(cfg.eval, max_new_tokens=cfg.eval.max_new_tokens or cfg.rollout.max_new_tokens)


def long_prompt_note(cfg: RunConfig, episodes: Sequence[Episode]) -> str:
    """Return a note on the episodes whose first prompt was too long; empty without any."""
    # Other reasons to truncate an episode need a turn.
    num_too_long = sum(episode.truncated and not episode.turns for episode in episodes)
    if not num_too_long:
        return ""
    return (
        f"in {num_too_long} of {len(episodes)} episodes the first prompt was too long, so they "
        f"failed without a response: increase engine.max_model_len={cfg.engine.max_model_len}"
    )


def make_policy_agent(
    cfg: RunConfig,
    tokenizer: ChatTokenizer,
    source: Engine | ChatEndpoint,
    *,
    evaluation: bool,
    temperature: float | None = None,
) -> EngineAgent | EndpointAgent:
    """Return an agent that samples with the options of rollouts, or of evaluation.

    Args:
        cfg: config of the run.
        tokenizer: tokenizer of the policy; of an endpoint, it encodes the responses.
        source: engine or endpoint that responds.
        evaluation: use the options of evaluation instead of those of rollouts.
        temperature: sampling temperature, 0 for greedy; None uses that of the options.
    """
    sampling = sampling_options(cfg, evaluation=evaluation)
    if temperature is None:
        temperature = sampling.temperature
    timeout = cfg.rollout.episode_timeout
    if isinstance(source, ChatEndpoint):
        return EndpointAgent(
            source,
            tokenizer,
            max_new_tokens=sampling.max_new_tokens,
            temperature=temperature,
            top_p=sampling.top_p,
            timeout=timeout,
        )
    return EngineAgent(
        source,
        tokenizer.stop_ids,
        max_new_tokens=sampling.max_new_tokens,
        temperature=temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        timeout=timeout,
    )


def make_engine(
    cfg: RunConfig, tokenizer: ChatTokenizer, model: ModelConfig, snapshot: PolicySnapshot
) -> Engine:
    """Return an engine with the options of the run.

    Raises:
        ConfigError, ShardingError: as `check_engine`.
    """
    check_engine(cfg, model)
    with _engine_errors(cfg):
        return Engine(
            replace(model, quantization=cfg.engine.quantization),
            snapshot.params,
            slots=cfg.engine.slots,
            max_model_len=cfg.engine.max_model_len,
            seed=cfg.seed,
            version=snapshot.version,
            steps_per_dispatch=cfg.engine.steps_per_dispatch,
            cache_bytes=cfg.engine.cache_bytes,
            mesh=sharding.engine_mesh(cfg.engine.tensor_parallel_size),
            shared_prefix=_shared_prompt_prefix(cfg, tokenizer),
            num_speculative_tokens=cfg.engine.num_speculative_tokens,
        )


def check_engine(cfg: RunConfig, model: ModelConfig) -> None:
    """Check the options of the engine without allocating it.

    Raises:
        ConfigError: `engine.max_model_len` exceeds the positions of the policy, or the KV cache is
            too small.
        ShardingError: this process has fewer devices than `engine.tensor_parallel_size`, or the
            policy does not divide over them.
    """
    if cfg.engine.max_model_len > model.max_positions:
        raise ConfigError(
            f"engine.max_model_len={cfg.engine.max_model_len} exceeds the context of "
            f"{model.max_positions} tokens of {cfg.policy.path}: set --config.engine.max_model_len="
            f"{model.max_positions}, or use another policy"
        )
    mesh = sharding.engine_mesh(cfg.engine.tensor_parallel_size)
    if mesh is not None:
        sharding.param_shardings(policy.abstract_params(model), mesh)
    with _engine_errors(cfg):
        EngineShapes.from_options(model, cfg.engine)


@contextmanager
def _engine_errors(cfg: RunConfig) -> Iterator[None]:
    """Convert a ValueError of the engine to a ConfigError that names the options."""
    try:
        yield
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(
            f"the options of the engine do not fit {cfg.policy.path}: {error} "
            "(--config.engine.max_model_len, --config.engine.kv_cache_mib)"
        ) from error


def prompt_format(cfg: RunConfig) -> PromptFormat:
    """Return the format of the prompts of a run; the template "auto" is that of the policy."""
    prompt = cfg.prompt
    if prompt.template == "auto":
        prompt = prompt_record.with_template(cfg).prompt
    return PromptFormat(TEMPLATES[prompt.template], prompt.thinking, prompt.full_pages)


def _shared_prompt_prefix(cfg: RunConfig, tokenizer: ChatTokenizer) -> IntArray:
    """Return the token ids of the common prefix of all prompts, probed with different intents."""
    prompt = prompt_format(cfg)
    # The intents begin with different characters, so the ids agree only before the intent.
    observation = Observation("", "")
    first, *others = (
        tokenizer.prompt_ids(build_messages(prompt, intent, (), observation))
        for intent in ("A", "b", "7", "(", '"')
    )
    shortest = min(len(first), *map(len, others))
    # [shortest]; the prefix ends at the first index where one prompt differs.
    is_equal = np.all([ids[:shortest] == first[:shortest] for ids in others], axis=0)
    return first[: int(np.logical_and.accumulate(is_equal).sum())]
