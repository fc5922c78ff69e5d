"""RunConfig: everything a run may be told, as frozen dataclasses, checked once at the start.

Config files in configs/ build a RunConfig and hand it over as an ml_collections ConfigDict, so that
`--config.grpo.updates=40` works on every launcher. `from_config_dict` turns it back and refuses
what it does not know.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import ml_collections


class ConfigError(ValueError):
    """An option is unknown or has a value that cannot work. The message says how to mend it."""


class PolicyNotFoundError(ConfigError, FileNotFoundError):
    """No policy at `policy.path`, and none to fetch. The message says how to fix it."""


@dataclass(frozen=True)
class EndpointConfig:
    """An OpenAI-compatible chat endpoint that replies instead of weights of ours."""

    url: str = ""  # up to the version: http://localhost:8000/v1
    model: str = ""
    key_variable: str = "OPENAI_API_KEY"  # environment variable that holds the key, if there is one
    concurrency: int = 8  # requests at once
    retries: int = 6  # tries after the first, each after a longer pause
    # Seconds for one try; rollout.episode_timeout is for all tries of a reply.
    timeout: float = 120.0
    # Dollars for a million tokens; below 0: as the price table says, unknown where it is silent.
    prompt_price: float = -1.0
    completion_price: float = -1.0


@dataclass(frozen=True)
class PolicyConfig:
    """Who replies: weights, and where they come from; or an endpoint, which cannot be trained."""

    kind: Literal["weights", "openai"] = "weights"
    endpoint: EndpointConfig = field(default_factory=EndpointConfig)
    # Its tokenizer counts the tokens of an endpoint's prompts, too.
    path: str = "webagent-tiny"  # shipped with the package; else a Hugging Face directory
    dtype: Literal["float32", "bfloat16"] = "float32"  # of activations; params stay float32
    # What the backward pass computes again, from nothing to all of a layer: time for memory.
    remat: Literal["none", "dots", "attention", "full"] = "none"
    unroll: int = 1  # layers to one step of the loop over them: faster, and slower to compile
    # "auto" is the backend's own: a Pallas kernel on TPU and GPU, on CPU dense or, for long rows,
    # blockwise.
    attention: Literal["auto", "dense", "blockwise", "cpu", "tpu", "gpu"] = "auto"


@dataclass(frozen=True)
class LoRAConfig:
    """Low-rank adapters instead of all params, for behaviour cloning and RL alike."""

    rank: int = 0  # 0 trains all params
    alpha: float = 32.0  # adapters are scaled by alpha / rank
    projections: tuple[str, ...] = ("q", "k", "v", "o", "gate", "up", "down")


@dataclass(frozen=True)
class MeshConfig:
    """How training lies on the devices. One of the three sizes may be -1: what is left."""

    data: int = 1  # copies of the params
    fsdp: int = -1  # params and rows are cut over it
    tensor: int = 1  # heads, hidden units of the MLP and vocabulary are
    rows_per_device: int = 4  # rows whose activations exist at once, for each of data x fsdp


@dataclass(frozen=True)
class PromptConfig:
    """How the model is spoken to, and what form its replies take."""

    template: Literal["compact", "webarena"] = "compact"
    thinking: bool = True  # <think> before <answer>; else a comment line, then the call


ObservationFormat = Literal["compact", "webarena_lite"]


@dataclass(frozen=True)
class BrowserConfig:
    executable: str = ""  # empty: $WEBAGENT_CHROMIUM, then the usual places
    sandbox: bool = False  # Chromium's own, for pages that are not yours; never works for root
    processes: int = 1  # Chromium processes, one loop thread each
    # Playwright servers to start Chromium on, by turns (ws://host:port/path); empty: this machine.
    endpoints: tuple[str, ...] = ()
    viewport_width: int = 1280  # CSS pixels
    viewport_height: int = 720
    call_timeout: float = 10.0  # seconds for one browser call
    navigation_timeout: float = 20.0  # seconds for one page load
    settle_timeout: float = 3.0  # seconds to wait at most for a page to become quiet
    episodes_per_process: int = 500  # Chromium is replaced after so many sessions
    reuse_contexts: bool = True  # where a suite allows it: wiped after an episode, for the next
    max_rss_mb: int = 4000  # ... or above this resident size, children included
    # "compact" is a line per element, "webarena_lite" the simplified HTML of published policies.
    observation: ObservationFormat = "compact"
    observation_chars: int = 12_000  # budget of one observation, cut at element borders
    data_bbox: bool = True  # every tag of webarena_lite tells its box: 55 to 60 % of the tokens


@dataclass(frozen=True)
class JudgeConfig:
    """The language model that is asked where no rule decides (suites/judge.py)."""

    url: str = ""  # of an OpenAI-compatible endpoint, up to the version; empty: no judge
    model: str = ""
    key_variable: str = ""  # environment variable that holds the key; empty sends none
    cache: str = ""  # folder that keeps its verdicts; empty keeps none
    strict: bool = False  # refuse to run where tasks cannot be scored, instead of leaving them out


@dataclass(frozen=True)
class WebArenaConfig:
    """WebArena-Lite and its kin on the user's own sites (docs/webarena.md).

    Where the sites are is no part of a run: it is told by the environment, `GITLAB` or `WA_GITLAB`.
    """

    # Task files: a path, or package:NAME/FILE for one that an installed package brings along.
    train_file: str = ""
    test_file: str = ""
    sites: tuple[str, ...] = ()  # only tasks that need no others; empty means all
    rules: Literal["lite", "webarena"] = "lite"  # of which harness texts are compared
    judge: JudgeConfig = field(default_factory=JudgeConfig)
    state_folder: str = ".auth"  # of the signed-in browser states, which are secrets
    extra_origins: tuple[str, ...] = ()  # what a site loads from elsewhere: map=tiles.example:8080
    turn_timeout: float = 7_200.0  # seconds that an episode waits for its turn on the sites
    # GET that resets a replica, with {site}, {host}, {port} of it; empty: they are never reset.
    reset_url: str = ""
    # GET with the status of a reset, for a server that answers before the reset is done.
    reset_status_url: str = ""
    reset_every: int = 1  # episodes that may have changed a replica between two resets of it
    reset_timeout: float = 900.0  # seconds until a site must be well again


@dataclass(frozen=True)
class BrowserGymConfig:
    """BrowserGym's environments, whose ids are `suite.tasks` (docs/browsergym.md)."""

    python: str = ""  # interpreter that has BrowserGym; empty means this one
    origins: tuple[str, ...] = ()  # host:port of the sites that their pages may reach


@dataclass(frozen=True)
class ArenaConfig:
    """The embedded arena (docs/arena.md)."""

    # Of the experts: the next step alone, the task and the next step, or those of R1-CoT.
    thoughts: Literal["short", "restate", "long"] = "short"
    # Seed of training tasks drawn anew instead of the 647; -1 keeps those.
    fresh_seed: int = -1
    fresh_tasks: int = 10_000


SuiteName = Literal["miniwob", "arena", "webarena_lite", "browsergym"]


@dataclass(frozen=True)
class SuiteConfig:
    name: SuiteName = "miniwob"
    # Names of pages, of tasks, or of a site's or template's tasks; empty means all of the suite.
    tasks: tuple[str, ...] = ()
    train_seeds: int = 10_000  # worlds of each of them to train in; a task of a file has one
    # By how much embedded sites answer late, as those far away do; for measurements.
    latency_ms: float = 0.0
    arena: ArenaConfig = field(default_factory=ArenaConfig)
    webarena: WebArenaConfig = field(default_factory=WebArenaConfig)
    browsergym: BrowserGymConfig = field(default_factory=BrowserGymConfig)


@dataclass(frozen=True)
class EngineConfig:
    slots: int = 16  # sequences decoded together
    max_tokens: int = 1024  # prompt and reply together
    steps_per_dispatch: int = 16  # decode steps between two looks at the results
    tensor: int = 1  # devices of this host that the engine is cut over
    cache_mib: int = 0  # of keys and values; 0: all slots at full length, and half as much again

    @property
    def cache_bytes(self) -> int | None:
        return self.cache_mib * 2**20 or None


@dataclass(frozen=True)
class RolloutConfig:
    contexts: int = 16  # episodes at once
    max_turns: int = 10
    max_new_tokens: int = 64  # per reply
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0  # 0 keeps all
    infra_retries: int = 2  # tries after the first before an episode is given up as INFRA
    episode_timeout: float = 120.0  # seconds
    # Seconds after its first episode began at which a group closes with what it has; 0: never.
    group_timeout: float = 0.0


@dataclass(frozen=True)
class OptimizerConfig:
    learning_rate: float = 1e-6
    schedule: Literal["constant", "cosine"] = "constant"
    warmup_fraction: float = 0.0  # of all updates
    b1: float = 0.9
    b2: float = 0.99
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0


@dataclass(frozen=True)
class BCConfig:
    demos_per_task: int = 8
    epochs: int = 4
    # Updates between two evaluations, on worlds of the training split that nobody demonstrated; the
    # best policy of them is what is kept. 0 evaluates never and keeps the last.
    eval_updates: int = 0
    eval_episodes: int = 64  # 0 measures decision accuracy alone, without browsers
    # Decision accuracy, at each evaluation and after the last update: turns of each split (trained
    # on, held out) whose greedy response is compared with the expert's. 0 turns it off.
    eval_decisions: int = 64
    held_out_demos: int = 0  # demonstrations that are not trained on
    batch_episodes: int = 32  # episodes per update
    # The mean over tokens of a response is averaged over all (history, action) pairs of a batch,
    # as in the paper, or over the turns of an episode and then over episodes.
    loss_aggregation: Literal["turn_token_mean", "episode_turn_token_mean"] = "turn_token_mean"
    row_tokens: int = 1024
    checkpoint_updates: int = 20  # updates between two checkpoints
    optimizer: OptimizerConfig = field(
        default_factory=lambda: OptimizerConfig(
            learning_rate=5e-5, schedule="cosine", warmup_fraction=0.05
        )
    )


@dataclass(frozen=True)
class GRPOConfig:
    """The defaults are the paper's values where it gives them (arXiv 2505.16421, section 4.1)."""

    updates: int = 40
    tasks_per_update: int = 16
    group_size: int = 8
    # Optimizer steps per batch of episodes: minibatches times epochs; 1 and 1 keep the ratio at 1,
    # more of either use what the browsers played better, within the clip.
    minibatches: int = 1
    epochs: int = 1
    # The objective (docs/objectives.md): share of a token, credit of an episode, what is summed.
    weights: Literal["three_level", "token_mean", "constant_length"] = "three_level"
    advantages: Literal[
        "group_std", "group_mean", "leave_one_out", "batch_mean", "success", "exponential"
    ] = "group_std"
    policy_loss: Literal["clip", "logp"] = "clip"
    rows: Literal["turns", "released"] = "turns"  # "released" scores as the published trainer does
    clip_low: float = 0.2  # of policy_loss=clip: the ratio counts from 1 - clip_low ...
    clip_high: float = 0.2  # ... to 1 + clip_high
    kl: Literal["k3", "k1"] = "k3"  # in the loss, or charged to the advantage of each token
    kl_beta: float = 0.001  # 0 skips the reference policy
    std_eps: float = 1e-4
    awr_temperature: float = 1.0  # of exp(A / temperature), for advantages=exponential
    # Episodes that a limit ended: as scored; not learnt from; or as failures.
    truncated: Literal["score", "mask", "zero"] = "score"
    # Updates that the policy of an episode may lag behind; 0 plays and learns by turns.
    staleness: int = 0
    importance_cap: float = 2.0  # of the proximal policy's ratio to the one that sampled
    drop_flat_groups: bool = True  # replace groups that carry no signal ...
    max_refills: int = 16  # ... by at most so many fresh groups per update
    row_tokens: int = 1024
    checkpoint_updates: int = 1  # updates between two checkpoints
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)


@dataclass(frozen=True)
class EvalConfig:
    split: Literal["train", "test"] = "test"
    episodes_per_task: int = 25  # worlds of each page; a task of a file has one
    attempts: int = 1  # at each world, for pass@k
    temperature: float = 0.0  # 0 is greedy
    top_p: float = 1.0
    top_k: int = 0  # 0 keeps all
    max_new_tokens: int = 0  # per response; 0: rollout.max_new_tokens
    # Identical responses in a row, or unreadable ones, that end an episode; 0: no such limit.
    max_repeats: int = 0
    # Turn limits; the longest is played, and the shorter ones are read off the same episodes.
    max_turns: tuple[int, ...] = (10,)
    pictures_per_task: int = 1  # episodes of each page kept with a picture of every step


@dataclass(frozen=True)
class GuardConfig:
    """When M-GRPO warns, and stops with its last good checkpoint; a limit of 0 is switched off."""

    entropy: float = 0.0  # nats of a token, at least
    kl: float = 0.0  # nats of a token from the reference, at most
    sampler_gap: float = 0.0  # nats between sampler and learner before the first step, at most
    repetition: float = 0.0  # share of turns that repeat the one before, at most
    infra: float = 0.99  # share of episodes of an update lost to browsers or sites, at most
    patience: int = 3  # updates in a row beyond a limit before the run stops


@dataclass(frozen=True)
class LogConfig:
    wandb_project: str = ""  # empty: metrics.jsonl and TensorBoard alone
    profile_update: int = 0  # the update whose profile is written to workdir/profile; 0: none


@dataclass(frozen=True)
class RunConfig:
    seed: int = 0
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    lora: LoRAConfig = field(default_factory=LoRAConfig)
    mesh: MeshConfig = field(default_factory=MeshConfig)
    prompt: PromptConfig = field(default_factory=PromptConfig)
    browser: BrowserConfig = field(default_factory=BrowserConfig)
    suite: SuiteConfig = field(default_factory=SuiteConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    bc: BCConfig = field(default_factory=BCConfig)
    grpo: GRPOConfig = field(default_factory=GRPOConfig)
    guard: GuardConfig = field(default_factory=GuardConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    log: LogConfig = field(default_factory=LogConfig)

    def __post_init__(self) -> None:
        _check(self)


def _check(cfg: RunConfig) -> None:
    """What no single field can know. Raises ConfigError."""
    elsewhere = cfg.browser.endpoints
    rules = (
        (
            all(endpoint.startswith(("ws://", "wss://")) for endpoint in elsewhere),
            "browser.endpoints must be addresses of Playwright servers: ws://host:port/path",
        ),
        (cfg.browser.processes >= 1, "browser.processes must be at least 1"),
        (
            bool(cfg.suite.webarena.judge.model) or not cfg.suite.webarena.judge.url,
            "suite.webarena.judge.model must name the model behind suite.webarena.judge.url",
        ),
        (
            cfg.suite.name != "browsergym" or bool(cfg.suite.tasks),
            "suite.tasks must name BrowserGym's environments: browsergym/miniwob.click-test",
        ),
        (cfg.suite.latency_ms >= 0, "suite.latency_ms must not be negative"),
        (
            cfg.suite.latency_ms == 0 or cfg.suite.name in ("miniwob", "arena"),
            "suite.latency_ms is for embedded sites alone: miniwob and arena",
        ),
        (cfg.suite.webarena.reset_every >= 1, "suite.webarena.reset_every must be at least 1"),
        (cfg.policy.unroll >= 1, "policy.unroll must be at least 1"),
        *_endpoint_rules(cfg),
        (cfg.lora.rank >= 0, "lora.rank must not be negative; 0 trains all params"),
        (cfg.lora.rank == 0 or bool(cfg.lora.projections), "lora.projections must name some"),
        (cfg.mesh.rows_per_device >= 1, "mesh.rows_per_device must be at least 1"),
        (cfg.engine.tensor >= 1, "engine.tensor must be at least 1"),
        (cfg.engine.cache_mib >= 0, "engine.cache_mib must not be negative; 0 chooses by slots"),
        (
            cfg.bc.eval_decisions >= 0 and cfg.bc.held_out_demos >= 0,
            "bc.eval_decisions and bc.held_out_demos must be at least 0, which turns them off",
        ),
        (cfg.grpo.group_size >= 2, "grpo.group_size must be at least 2: advantages need siblings"),
        (cfg.grpo.minibatches >= 1, "grpo.minibatches must be at least 1"),
        (cfg.grpo.epochs >= 1, "grpo.epochs must be at least 1"),
        (
            cfg.grpo.minibatches <= cfg.grpo.tasks_per_update,
            "grpo.minibatches must be at most grpo.tasks_per_update: each needs a group",
        ),
        (
            # AWR and filtered BC are regressions on the batch: they may take any number of steps.
            cfg.grpo.policy_loss == "clip"
            or cfg.grpo.advantages in ("success", "exponential")
            or cfg.grpo.minibatches * cfg.grpo.epochs == 1,
            "grpo.policy_loss=logp with a baseline needs grpo.minibatches=1 and grpo.epochs=1: "
            "later steps on a batch are off-policy, and this loss has no ratio to correct them; "
            "or choose grpo.policy_loss=clip",
        ),
        (0 <= cfg.grpo.clip_low < 1, "grpo.clip_low must be in [0, 1)"),
        (cfg.grpo.clip_high >= 0, "grpo.clip_high must not be negative"),
        (cfg.grpo.kl_beta >= 0, "grpo.kl_beta must not be negative; 0 leaves the KL out"),
        (cfg.grpo.std_eps >= 0, "grpo.std_eps must not be negative"),
        (cfg.grpo.awr_temperature > 0, "grpo.awr_temperature must be above 0"),
        (
            cfg.grpo.importance_cap >= 1,
            "grpo.importance_cap must be at least 1, its value on policy",
        ),
        (
            cfg.grpo.rows == "turns"
            or (cfg.grpo.policy_loss == "logp" and cfg.grpo.staleness == 0),
            "grpo.rows=released needs grpo.policy_loss=logp and grpo.staleness=0: replies are "
            "scored in another context than they were sampled in, and no ratio of the two means "
            "anything",
        ),
        (cfg.rollout.contexts >= 1, "rollout.contexts must be at least 1"),
        (cfg.rollout.max_turns >= 1, "rollout.max_turns must be at least 1"),
        (cfg.rollout.temperature > 0, "rollout.temperature must be above 0: RL needs sampling"),
        (cfg.eval.temperature >= 0, "eval.temperature must not be negative"),
        (0 < cfg.eval.top_p <= 1, "eval.top_p must be above 0 and at most 1, which keeps all"),
        (cfg.eval.top_k >= 0, "eval.top_k must not be negative; 0 keeps all"),
        (
            cfg.eval.max_repeats == 0 or cfg.eval.max_repeats >= 2,
            "eval.max_repeats must be at least 2, or 0 for no such limit",
        ),
        (
            0 <= cfg.eval.max_new_tokens < cfg.engine.max_tokens,
            "eval.max_new_tokens must be below engine.max_tokens, which holds prompt and response; "
            "0 is rollout.max_new_tokens",
        ),
        (cfg.eval.episodes_per_task >= 1, "eval.episodes_per_task must be at least 1"),
        (cfg.eval.attempts >= 1, "eval.attempts must be at least 1"),
        (
            cfg.eval.attempts == 1 or cfg.eval.temperature > 0,
            "eval.attempts above 1 need eval.temperature above 0: greedy attempts are all alike",
        ),
        (
            bool(cfg.eval.max_turns) and min(cfg.eval.max_turns) >= 1,
            "eval.max_turns must name turn limits of at least 1, such as 30, or 5,10,15,20,25,30",
        ),
        (
            cfg.rollout.max_new_tokens < cfg.engine.max_tokens,
            "rollout.max_new_tokens must be below engine.max_tokens, which holds prompt and reply",
        ),
        (
            cfg.policy.kind == "openai"
            or cfg.engine.max_tokens <= min(cfg.bc.row_tokens, cfg.grpo.row_tokens),
            "bc.row_tokens and grpo.row_tokens must be at least engine.max_tokens: "
            "a row holds any one turn whole",
        ),
    )
    for holds, message in rules:
        if not holds:
            raise ConfigError(message)


def _endpoint_rules(cfg: RunConfig) -> tuple[tuple[bool, str], ...]:
    """What must hold where an endpoint replies."""
    if cfg.policy.kind == "weights":
        return ()
    endpoint = cfg.policy.endpoint
    return (
        (
            endpoint.url.startswith(("http://", "https://")),
            "policy.endpoint.url must be set for policy.kind=openai, up to the version: "
            "https://api.openai.com/v1, or http://localhost:8000/v1 of a server of your own",
        ),
        (bool(endpoint.model), "policy.endpoint.model must name the model for policy.kind=openai"),
        (endpoint.concurrency >= 1, "policy.endpoint.concurrency must be at least 1"),
        (endpoint.retries >= 0, "policy.endpoint.retries must not be negative; 0 tries once"),
        (endpoint.timeout > 0, "policy.endpoint.timeout must be above 0: seconds for one try"),
        (
            cfg.rollout.top_k == cfg.eval.top_k == 0,
            "rollout.top_k and eval.top_k must be 0 for policy.kind=openai: "
            "endpoints know top_p alone",
        ),
    )


def to_config_dict(cfg: RunConfig) -> ml_collections.ConfigDict:
    """The same config, open to overrides from the command line."""
    return ml_collections.ConfigDict(dataclasses.asdict(cfg))


def from_config_dict(values: ml_collections.ConfigDict | Mapping[str, Any]) -> RunConfig:
    """Raises ConfigError for unknown options and wrong types, naming the valid ones."""
    plain = values.to_dict() if isinstance(values, ml_collections.ConfigDict) else dict(values)
    return typing.cast(RunConfig, _build(RunConfig, plain, "config"))


def _build(cls: type, values: Mapping[str, Any], where: str) -> Any:
    hints = typing.get_type_hints(cls)
    unknown = sorted(set(values) - set(hints))
    if unknown:
        raise ConfigError(
            f"unknown option {where}.{unknown[0]}; {where} has: {', '.join(sorted(hints))}"
        )
    return cls(**{k: _convert(hints[k], v, f"{where}.{k}") for k, v in values.items()})


def _items(hint: Any, value: Any) -> list[Any]:
    """What a list holds. Flags leave names with commas between them whole, and make 7 a number."""
    given = [value] if isinstance(value, str | int) else list(value)
    if hint is not str:
        return given
    plain = [str(each) if type(each) is int else each for each in given]
    split = [each.split(",") if isinstance(each, str) else [each] for each in plain]
    return [name for names in split for name in names if name != ""]


def _convert(hint: Any, value: Any, where: str) -> Any:
    """`value` as the type that the field declares."""
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, Mapping):
            raise ConfigError(f"{where} is a group of options, not {value!r}")
        return _build(typing.cast(type, hint), value, where)
    origin = typing.get_origin(hint)
    if origin is Literal:
        if value not in typing.get_args(hint):
            choices = ", ".join(map(str, typing.get_args(hint)))
            raise ConfigError(f"{where}={value!r} is not one of: {choices}")
        return value
    if origin is tuple:
        item = typing.get_args(hint)[0]
        return tuple(_convert(item, each, where) for each in _items(item, value))
    if origin in (typing.Union, types.UnionType):
        raise TypeError(f"{where}: config fields have one type each, not {hint}")
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not hint:
        raise ConfigError(f"{where}={value!r} is not of type {hint.__name__}")
    return value
