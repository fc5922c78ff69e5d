"""Run configuration: frozen dataclasses that are validated when they are created.

Config files in configs/ build a RunConfig and return it as an ml_collections ConfigDict, so every
command accepts overrides such as `--config.grpo.updates=40`. `from_config_dict` converts it back
and rejects unknown options.
"""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import ml_collections

T = TypeVar("T")


class ConfigError(ValueError):
    """Unknown option or invalid value. The message says how to fix it."""


class RunStoppedError(RuntimeError):
    """Training stopped before its end. Checkpoints are valid; the message says how to continue."""


class PreemptedError(RunStoppedError):
    """Training stopped by SIGTERM after saving a checkpoint."""

    def __init__(self, update: int) -> None:
        super().__init__(
            f"stopped by SIGTERM after update {update}; the same command continues the run"
        )


class PolicyNotFoundError(ConfigError, FileNotFoundError):
    """No policy at `policy.path`, and none to download. The message says how to fix it."""


@dataclass(frozen=True)
class EndpointConfig:
    """OpenAI-compatible chat endpoint that acts instead of a local policy."""

    url: str = ""  # base URL including the version: http://localhost:8000/v1
    model: str = ""  # name of the model at the endpoint
    api_key_env: str = "OPENAI_API_KEY"  # environment variable with the API key; may be unset
    concurrency: int = 8  # maximum number of concurrent requests
    retries: int = 6  # maximum number of retries per request, with exponential backoff
    # Time limit of one HTTP request, in seconds. rollout.episode_timeout also limits its retries.
    timeout: float = 120.0
    # Further fields of the requests, as a JSON object: {"reasoning_effort": "low"}; empty: none.
    extra_body: str = ""
    # Price of prompt tokens, in US dollars per million. A negative value selects the price table
    # (endpoint/prices.py); the cost is unknown for models that it does not list.
    prompt_usd_per_mtok: float = -1.0
    completion_usd_per_mtok: float = -1.0  # price of completion tokens; see prompt_usd_per_mtok


@dataclass(frozen=True)
class PolicyConfig:
    """Local policy with its compute settings, or a chat endpoint, which cannot be trained."""

    kind: Literal["weights", "openai"] = "weights"  # local policy or chat endpoint
    endpoint: EndpointConfig = field(default_factory=EndpointConfig)  # used with kind=openai
    # Name of a policy in the package, Hugging Face directory or Hub id, GGUF file, or PEFT adapter
    # (docs/getting_started.md). Its tokenizer also counts the prompt tokens of kind=openai.
    path: str = "webagent-tiny"
    dtype: Literal["float32", "bfloat16"] = "float32"  # dtype of activations; params are float32
    # Dtype of the inputs of matmuls with params. bfloat16 with float32 activations is faster on
    # CPUs with AVX512-BF16 or AMX; bfloat16 activations need no setting.
    matmul_dtype: Literal["float32", "bfloat16"] = "float32"
    # Rematerialization, from fastest to least memory. Values of a layer that are saved for the
    # backward pass: all, outputs of matmuls with params, output of attention, or only the input.
    remat: Literal["none", "dots", "attention", "full"] = "none"
    unroll: int = 1  # layers per iteration of the layer scan; more is faster but compiles longer
    # Implementation of attention in training. "auto" selects a Pallas kernel on TPU and GPU, and
    # dense or, for long rows, blockwise attention on CPU.
    attention: Literal["auto", "dense", "blockwise", "cpu", "tpu", "gpu"] = "auto"


PROJECTIONS = ("q", "k", "v", "o", "gate", "up", "down")  # projections of a layer


@dataclass(frozen=True)
class LoRAConfig:
    """Low-rank adapters (LoRA): with a rank above 0, BC and M-GRPO train only these."""

    rank: int = 0  # rank of the adapters; 0 trains all params
    alpha: float = 32.0  # numerator of the adapter scale, alpha / rank
    # Projections with adapters: some of q, k, v, o, gate, up, down.
    target_modules: tuple[str, ...] = PROJECTIONS
    # True: train a new adapter; a PEFT adapter at policy.path becomes part of the frozen base.
    # False: train the adapter at policy.path itself, with its rank and target_modules.
    create_new_adapter: bool = True


@dataclass(frozen=True)
class MeshConfig:
    """Device mesh of training. One of the three axis sizes may be -1: all remaining devices."""

    data: int = 1  # size of the axis that replicates params and shards rows
    fsdp: int = -1  # size of the axis that shards params and rows
    tensor: int = 1  # size of the axis that shards heads, MLP hidden units and vocabulary
    # Rows per microbatch for each device of data x fsdp; bounds the memory of activations.
    microbatch_rows_per_device: int = 4


@dataclass(frozen=True)
class PromptConfig:
    """Format of prompts and responses."""

    # Prompt template (agent/prompts.py): "webarena" describes the actions, "compact" is for
    # policies trained with it. "auto" selects that of the policy, and webarena for other models.
    template: Literal["auto", "compact", "webarena"] = "auto"
    # Response format: <think> and <answer> blocks, or a comment line before the action call.
    thinking: bool = True
    # Number of latest pages in full; earlier ones are placeholders, as in the paper. 0: all pages.
    full_pages: int = 1


ObservationFormat = Literal["compact", "webarena_lite"]
WorkerType = Literal["thread", "process"]


@dataclass(frozen=True)
class BrowserConfig:
    """Chromium processes, time limits and observations."""

    # Path of Chromium. Empty: $WEBAGENT_CHROMIUM, then the usual install locations.
    executable_path: str = ""
    # Whether Chromium uses its own sandbox, for untrusted pages; it cannot run as root.
    chromium_sandbox: bool = False
    num_processes: int = 1  # number of Chromium processes, each with its own worker
    # Whether a worker, which drives one Chromium, is a thread or a process. Threads share one
    # interpreter lock, which limits the turns per second on machines with many cores.
    worker_type: WorkerType = "thread"
    # Playwright servers that launch the Chromium processes, in round-robin order
    # (ws://host:port/path); empty: local processes.
    ws_endpoints: tuple[str, ...] = ()
    # Width of the viewport in CSS pixels, on WebArena and sites of your own. Other suites have one
    # of their own.
    viewport_width: int = 1280
    # Height of the viewport in CSS pixels, on WebArena and sites of your own.
    viewport_height: int = 720
    # Whether pages load from https sites with invalid certificates, such as self-signed ones.
    ignore_https_errors: bool = False
    call_timeout: float = 10.0  # time limit of one browser call, in seconds
    navigation_timeout: float = 20.0  # time limit of one page load, in seconds
    settle_timeout: float = 3.0  # maximum wait for a quiet page, in seconds
    max_episodes_per_process: int = 500  # sessions after which a Chromium process restarts
    # Whether suites that allow it reuse browser contexts, cleared between episodes.
    reuse_contexts: bool = True
    max_rss_mib: int = 4000  # RSS above which Chromium restarts, child processes included, in MiB
    # Format of observations: "compact" has one line per element, "webarena_lite" is the simplified
    # HTML that published policies read.
    observation_format: ObservationFormat = "compact"
    max_observation_chars: int = 12_000  # maximum, in characters; cut between elements
    # Whether tags of webarena_lite include bounding boxes, 55 to 60 % of their tokens.
    data_bbox: bool = True


@dataclass(frozen=True)
class JudgeConfig:
    """Language model that scores tasks without an exact rule (suites/judge.py)."""

    url: str = ""  # base URL of an OpenAI-compatible endpoint, with version; empty: no judge
    model: str = ""  # name of the model at the endpoint
    api_key_env: str = ""  # environment variable with the API key; empty: no key
    cache_dir: str = ""  # folder of cached verdicts; empty: no cache
    # Whether requests contain the verdicts as a JSON schema; False if the endpoint rejects it.
    json_schema: bool = True
    # Whether tasks that cannot be scored are an error; otherwise the run skips them.
    required: bool = False


WebArenaLabels = Literal["original", "verified", "lite-v2"]


@dataclass(frozen=True)
class WebArenaConfig:
    """WebArena-Lite and similar task files on self-hosted sites (docs/webarena.md).

    Environment variables contain the site addresses, `GITLAB` or `WA_GITLAB` for example, unless
    `addresses` does.
    """

    # Task file of the training split: a path, or package:NAME/FILE for a file of an installed
    # package.
    train_file: str = ""
    test_file: str = ""  # task file of the test split, in the same form
    # Labels that score the test split: those in test_file, or those of WebArena-Verified or
    # WebArena-Lite-v2 (lite_v2_file), which have their own tasks.
    labels: WebArenaLabels = "original"
    # Tasks of labels=verified: all 812, the 258 hard ones, or the 165 of WebArena-Lite.
    verified_split: Literal["verified", "hard", "lite-verified"] = "verified"
    # Python interpreter with webarena-verified installed; empty: that of the command
    # webarena-verified on the PATH.
    verified_python: str = ""
    lite_v2_file: str = ""  # file test.raw.json of WebArena-Lite-v2 (docs/webarena.md)
    # Whether episodes store their network log, for scores under other labels (`webagent rescore`);
    # with labels=verified they always do.
    keep_network_logs: bool = False
    # Addresses of sites, such as crm=http://localhost:3000. Task files may name these sites besides
    # those of WebArena, and contain the placeholder __CRM__.
    addresses: tuple[str, ...] = ()
    sites: tuple[str, ...] = ()  # sites to use; tasks that need others are skipped; empty: all
    # Text comparison of the evaluators: that of WebArena-Lite (VisualAgentBench) or of WebArena.
    matching_rules: Literal["lite", "webarena"] = "lite"
    judge: JudgeConfig = field(default_factory=JudgeConfig)  # scorer of tasks without exact rules
    auth_dir: str = ".auth"  # folder of signed-in browser states; these are secrets
    extra_origins: tuple[str, ...] = ()  # other origins that a site loads: map=tiles.example:8080
    replica_timeout: float = 7_200.0  # maximum wait of an episode for a replica, in seconds
    # URL template of the GET request that resets a replica, with {site}, {host} and {port}; empty:
    # no resets.
    reset_url: str = ""
    # URL template of the GET request that reports the status of a reset, for servers that respond
    # before the reset has finished; empty: the reset request waits.
    reset_status_url: str = ""
    reset_every: int = 1  # number of episodes that may modify a replica before it is reset
    reset_timeout: float = 900.0  # maximum duration of a reset, in seconds


@dataclass(frozen=True)
class BrowserGymConfig:
    """BrowserGym environments; `suite.tasks` lists their ids (docs/browsergym.md)."""

    python: str = ""  # Python interpreter with BrowserGym installed; empty: the current one
    origins: tuple[str, ...] = ()  # sites that the pages may load, as host:port


@dataclass(frozen=True)
class ArenaConfig:
    """Embedded arena (docs/arena.md)."""

    # Seed of generated training tasks, which replace the 647 fixed ones; -1: the fixed tasks.
    task_seed: int = -1
    num_generated_tasks: int = 10_000  # number of training tasks generated from task_seed
    # Whether tasks are generated only from templates that have test tasks.
    test_templates_only: bool = False


@dataclass(frozen=True)
class InfinityConfig:
    """WebArena-Infinity: apps, tasks and verifiers of a checkout (docs/infinity.md)."""

    path: str = ""  # folder of the checkout, which contains apps/
    # Difficulties to use: easy, medium, hard, function; empty: all. Function tasks are for training
    # only.
    difficulties: tuple[str, ...] = ()
    # Apps without training tasks.
    test_apps: tuple[str, ...] = ("gitlab-plan-and-track", "superhuman-general")
    # Tasks of the test split: those of test_apps, or held-out tasks of the other apps.
    test_split: Literal["apps", "tasks"] = "apps"
    verifier_timeout: float = 20.0  # time limit of a verifier, in seconds


SuiteName = Literal["miniwob", "arena", "webarena_lite", "browsergym", "infinity"]


@dataclass(frozen=True)
class SuiteConfig:
    """Tasks and sites of a run."""

    name: SuiteName = "miniwob"  # suite of the run
    # Function that creates a suite of your own or a gymnasium environment, as module:function
    # (docs/your_site.md); replaces `name`. The module is found in the current folder or an
    # installed package.
    factory: str = ""
    # Names of tasks, arena sites, arena templates or apps; empty: the complete suite.
    tasks: tuple[str, ...] = ()
    # Seeds per name in the training split. A name of the arena, WebArena or Infinity is a single
    # task: M-GRPO and evaluation run its seed 0, and bc.demos_per_task above 1 repeats it.
    train_seeds_per_task: int = 10_000
    # Delay of every response of the embedded sites, in milliseconds; for measurements.
    response_delay_ms: float = 0.0
    arena: ArenaConfig = field(default_factory=ArenaConfig)
    webarena: WebArenaConfig = field(default_factory=WebArenaConfig)
    browsergym: BrowserGymConfig = field(default_factory=BrowserGymConfig)
    infinity: InfinityConfig = field(default_factory=InfinityConfig)

    @property
    def label(self) -> str:
        """Factory or name of the suite, for messages."""
        return self.factory or self.name

    @property
    def has_single_tasks(self) -> bool:
        """True if each name of the suite is one task, of which seeds are repetitions."""
        return self.name in ("arena", "infinity", "webarena_lite") and not self.factory

    @property
    def num_train_seeds(self) -> int:
        """Number of different training tasks per name."""
        return 1 if self.has_single_tasks else self.train_seeds_per_task


Quantization = Literal["none", "int8", "fp8"]
"""Dtype of the projections of the engine: that of the activations, int8 or float8_e4m3fn."""


@dataclass(frozen=True)
class EngineConfig:
    """Inference engine of a local policy."""

    slots: int = 16  # number of sequences in the decode batch
    max_model_len: int = 1024  # maximum length of prompt and response together, in tokens
    # Decode steps between two transfers of results to the host. With fewer, finished responses
    # return sooner and waiting requests start sooner; on a CPU, a step of a large policy takes
    # longer than a transfer.
    steps_per_dispatch: int = 16
    tensor_parallel_size: int = 1  # number of local devices that share the engine
    # Size of the KV cache in MiB; 0: 1.5 times the size of all slots at full length.
    kv_cache_mib: int = 0
    # Draft tokens per slot and decode step (speculative decoding with n-grams, as in vLLM): taken
    # from earlier occurrences in the prompt and in recent responses. They save decode steps and
    # change completions by rounding only. 0: no speculative decoding.
    num_speculative_tokens: int = 0
    # Weights of the projections: in the dtype of the activations, or 8 bits with a scale per output
    # channel. The learner keeps full precision; M-GRPO then applies importance weights.
    quantization: Quantization = "none"

    @property
    def cache_bytes(self) -> int | None:
        """Size of the KV cache in bytes; None if it depends on the slots."""
        return self.kv_cache_mib * 2**20 or None


@dataclass(frozen=True)
class RolloutConfig:
    """Episodes of all runs, and sampling of training and collection."""

    max_concurrent_episodes: int = 16  # number of episodes that run at the same time
    max_turns: int = 10  # maximum number of turns per episode
    max_new_tokens: int = 64  # maximum length of a response, in tokens
    temperature: float = 1.0  # sampling temperature, above 0
    # Probability mass of nucleus sampling in `webagent collect --demo_source=policy`; 1: no limit,
    # which M-GRPO requires.
    top_p: float = 1.0
    # Number of most likely tokens to sample from, also for `webagent collect`; 0: no limit, which
    # M-GRPO requires.
    top_k: int = 0
    infra_retries: int = 2  # maximum number of retries of an episode with an INFRA outcome
    episode_timeout: float = 120.0  # time limit of an episode, in seconds
    # Time limit of a group, in seconds from the start of its first episode; 0: no limit. At the
    # limit, the group completes with its finished episodes, once two of them have a reward.
    group_timeout: float = 0.0


@dataclass(frozen=True)
class OptimizerConfig:
    """AdamW and its learning rate schedule."""

    learning_rate: float = 1e-6  # peak learning rate
    schedule: Literal["constant", "cosine"] = "constant"  # learning rate after the warmup
    warmup_fraction: float = 0.0  # length of the warmup as a fraction of all steps
    b1: float = 0.9  # decay rate of the first moment
    b2: float = 0.99  # decay rate of the second moment
    weight_decay: float = 0.0  # decoupled weight decay
    max_grad_norm: float = 1.0  # upper bound of the global gradient norm


ExpertThoughts = Literal["short", "restate", "long"]


@dataclass(frozen=True)
class BCConfig:
    """Behavior cloning on demonstrations."""

    # Number of training tasks per task name to collect demonstrations of; a failed episode gives
    # none.
    demos_per_task: int = 8
    # Thoughts of scripted experts: the next step; the task and the next step; or the task, past
    # steps, reason and next step, for WebAgent-R1-CoT.
    expert_thoughts: ExpertThoughts = "short"
    # Probability that a scripted expert makes a mistake before a decision and then corrects it: it
    # opens a wrong link, or uses an id that no element has. BC does not train on the mistakes
    # (DART, arXiv 1703.09327).
    mistake_rate: float = 0.0
    epochs: int = 4  # number of passes over the demonstrations
    # Updates between two validations, which measure the success rate on a fixed sample of training
    # tasks whose demonstrations are held out, sampled with eval.temperature, in up to
    # rollout.max_turns turns. The run then keeps the policy with the highest success rate, the
    # last of equal ones. 0: no validation, and the run keeps the last policy.
    eval_interval: int = 0
    # Number of episodes per validation; 0: decision accuracy only, without browsers.
    eval_episodes: int = 64
    # Number of turns per split (training, held out) that measure decision accuracy: greedy
    # responses compared with those of the expert, at each validation and after the last update.
    # 0: no measurement.
    eval_decisions: int = 64
    held_out_demos: int = 0  # number of demonstrations excluded from training
    batch_episodes: int = 32  # number of demonstrations per update
    # Number of turns of a demonstration to train on per epoch: the first, and others drawn at
    # random. At equal cost, fewer turns of more demonstrations cover more tasks. 0: all turns.
    turns_per_demo: int = 0
    # Loss weights: the mean over the tokens of a response, averaged over all (history, action)
    # pairs of a batch as in the paper, or over the turns of an episode and then over episodes.
    loss_aggregation: Literal["turn_token_mean", "episode_turn_token_mean"] = "turn_token_mean"
    # Maximum length of a training row, in tokens. In a single process, rows of small batches may
    # have a half or a quarter of it.
    row_tokens: int = 1024
    checkpoint_interval: int = 20  # updates between two checkpoints
    optimizer: OptimizerConfig = field(
        default_factory=lambda: OptimizerConfig(
            learning_rate=5e-5, schedule="cosine", warmup_fraction=0.05
        )
    )


@dataclass(frozen=True)
class GRPOConfig:
    """M-GRPO and its variants.

    Defaults are the values of the paper where it states them (arXiv 2505.16421, section 4.1).
    """

    # Number of updates of the run. With schedule=constant, a later call may change it.
    updates: int = 40
    tasks_per_update: int = 16  # number of groups per update
    group_size: int = 8  # number of episodes per group
    # Sampling of tasks: passes over all task names (uniform), or more often from templates whose
    # recent groups had different rewards (adaptive).
    task_sampling: Literal["uniform", "adaptive"] = "uniform"
    minibatches: int = 1  # parts of the batch of an update; one optimizer step each
    # Passes over the batch of an update. With one minibatch and one epoch, the ratio is always 1,
    # so the clip has no effect.
    epochs: int = 1
    # Loss weights of response tokens (docs/objectives.md).
    loss_aggregation: Literal[
        "episode_turn_token_mean", "token_mean", "constant_length", "constant_turns"
    ] = "episode_turn_token_mean"
    # Estimator of the advantages of episodes (docs/objectives.md).
    advantage_estimator: Literal[
        "group_std", "group_mean", "leave_one_out", "batch_mean", "success", "exponential"
    ] = "group_std"
    negative_advantage_scale: float = 1.0  # factor of negative advantages, in [0, 1]
    # Weight of the advantages of single turns, on pages that several episodes of a group visit;
    # 0: advantages of episodes only.
    step_advantage_weight: float = 0.0
    step_discount: float = 0.95  # discount of the value of a page, per turn until the success
    # Policy loss: clipped ratio (PPO) or log-probability (REINFORCE, AWR, cloning).
    policy_loss: Literal["clip", "logp"] = "clip"
    # Training sequences: turns as sampled, or whole episodes as in the release of WebAgent-R1.
    sequence_layout: Literal["turns", "webagent_r1_release"] = "turns"
    clip_low: float = 0.2  # distance from 1 to the lower bound of the ratio, with policy_loss=clip
    clip_high: float = 0.2  # distance from 1 to its upper bound, with policy_loss=clip
    # KL estimator: k3 is a loss term, k1 is part of the advantage of each token.
    kl_estimator: Literal["k3", "k1"] = "k3"
    kl_beta: float = 0.001  # coefficient of the KL term; 0: no term and no reference policy
    # Reference policy: the policy at the start of training, or the policy before the update.
    kl_reference: Literal["initial", "previous"] = "initial"
    std_eps: float = 1e-4  # constant added to the standard deviation of group_std
    awr_temperature: float = 1.0  # divisor of A in exp(A / temperature) of exponential
    # Episodes that ended at a limit: keep the reward, exclude from training, or set reward 0.
    truncated_episodes: Literal["score", "mask", "zero"] = "score"
    # Maximum number of updates between sampling and training of an episode; 0: synchronous.
    max_staleness: int = 0
    importance_weight_cap: float = 2.0  # upper bound of the weight pi_prox / pi_behavior
    filter_groups: bool = True  # whether further groups replace those without a signal
    max_extra_groups: int = 16  # maximum number of replacement groups per update
    # Whether an earlier success of the task replaces a failure of a group in which all failed.
    success_replay: bool = False
    # Updates between two validations, which measure the success rate on a fixed sample of training
    # tasks, sampled with eval.temperature, in up to rollout.max_turns turns. The run then keeps the
    # policy with the highest success rate, the last of equal ones. 0: no validation, and the run
    # keeps the last policy.
    eval_interval: int = 0
    eval_episodes: int = 64  # number of episodes per validation
    # Maximum length of a training row, in tokens. In a single process, rows of small batches may
    # have a half or a quarter of it.
    row_tokens: int = 1024
    checkpoint_interval: int = 1  # updates between two checkpoints
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)

    @property
    def needs_reference(self) -> bool:
        """True if the objective needs the params from the start of training."""
        return self.kl_beta > 0 and self.kl_reference == "initial"


@dataclass(frozen=True)
class EvalConfig:
    """Tasks, sampling and limits of an evaluation."""

    split: Literal["train", "test"] = "test"  # split of the tasks
    # Seeds per name of the suite. Names of the arena, WebArena and Infinity have one; use
    # `attempts` to repeat them.
    seeds_per_task: int = 25
    attempts: int = 1  # number of attempts per task, for pass@k
    temperature: float = 0.0  # sampling temperature; 0: greedy
    top_p: float = 1.0  # probability mass of nucleus sampling; 1: no limit
    top_k: int = 0  # number of most likely tokens to sample from; 0: no limit
    max_new_tokens: int = 0  # maximum length of a response; 0: rollout.max_new_tokens
    # Consecutive identical or unparsable responses that end an episode; 0: no limit.
    max_repeats: int = 0
    # Turn limits to report. Episodes run to the highest; results of lower limits are derived.
    max_turns: tuple[int, ...] = (10,)
    screenshots_per_task: int = 1  # episodes per name whose screenshots are stored


@dataclass(frozen=True)
class GuardConfig:
    """Limits beyond which M-GRPO warns, then stops with its last good checkpoint; 0 is no limit."""

    min_entropy: float = 0.0  # lower limit of the entropy, in nats per token
    max_kl: float = 0.0  # upper limit of the KL to the reference, in nats per token
    # Upper limit of the log-probability difference between sampler and learner before the first
    # step of an update, in nats per token.
    max_logp_difference: float = 0.0
    max_repetition: float = 0.0  # upper limit of the fraction of turns that repeat the previous one
    # Upper limit of the fraction of episodes of an update with an INFRA outcome.
    max_infra_fraction: float = 0.99
    patience: int = 3  # consecutive updates beyond a limit after which the run stops


@dataclass(frozen=True)
class LogConfig:
    """Additional outputs of a run."""

    wandb_project: str = ""  # Weights & Biases project; empty: metrics.jsonl and TensorBoard only
    profile_update: int = 0  # update of M-GRPO to profile into workdir/profile; 0: none
    # Training episodes whose screenshots are stored, for every grpo.tasks_per_update groups.
    screenshots_per_update: int = 1


@dataclass(frozen=True)
class RunConfig:
    """Complete configuration of a run, validated on creation."""

    seed: int = 0  # seed of all random streams of the run
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

    @property
    def is_off_policy(self) -> bool:
        """True if M-GRPO trains on samples of policies other than its current one."""
        return bool(
            self.grpo.max_staleness
            or self.grpo.success_replay
            or self.engine.quantization != "none"
        )


_POSITIVE_BROWSER_OPTIONS = (
    "num_processes",
    "viewport_width",
    "viewport_height",
    "max_episodes_per_process",
    "max_rss_mib",
    "max_observation_chars",
)

# Fields of requests to chat endpoints that policy.endpoint.extra_body must not replace. Responses
# are read as a whole, so they cannot be streamed.
_REQUEST_FIELDS = (
    "model",
    "messages",
    "max_tokens",
    "max_completion_tokens",
    "temperature",
    "top_p",
    "seed",
    "stream",
)

_MAX_TIMEOUT = 1_000_000  # seconds; sockets and browsers count milliseconds in 32 bits: 24 days


def _check(cfg: RunConfig) -> None:
    """Check values and combinations.

    Raises:
        ConfigError: a value or combination is invalid.
    """
    rules = (
        (
            all(url.startswith(("ws://", "wss://")) for url in cfg.browser.ws_endpoints),
            "browser.ws_endpoints must be addresses of Playwright servers: ws://host:port/path",
        ),
        *(
            (getattr(cfg.browser, name) > 0, f"browser.{name} must be above 0")
            for name in _POSITIVE_BROWSER_OPTIONS
        ),
        _timeout_rule("browser.call_timeout", cfg.browser.call_timeout),
        _timeout_rule("browser.navigation_timeout", cfg.browser.navigation_timeout),
        _timeout_rule("browser.settle_timeout", cfg.browser.settle_timeout),
        (
            bool(cfg.suite.webarena.judge.model) or not cfg.suite.webarena.judge.url,
            "suite.webarena.judge.model must name the model behind suite.webarena.judge.url",
        ),
        (
            cfg.suite.name != "browsergym" or bool(cfg.suite.tasks or cfg.suite.factory),
            "suite.tasks must name BrowserGym's environments: browsergym/miniwob.click-test",
        ),
        (
            cfg.suite.arena.num_generated_tasks >= 1,
            "suite.arena.num_generated_tasks must be at least 1",
        ),
        (cfg.suite.response_delay_ms >= 0, "suite.response_delay_ms must not be negative"),
        (
            cfg.suite.response_delay_ms == 0
            or (cfg.suite.name in ("miniwob", "arena") and not cfg.suite.factory),
            "suite.response_delay_ms needs an embedded suite: miniwob or arena",
        ),
        (cfg.suite.webarena.reset_every >= 1, "suite.webarena.reset_every must be at least 1"),
        _timeout_rule("suite.webarena.replica_timeout", cfg.suite.webarena.replica_timeout),
        _timeout_rule("suite.webarena.reset_timeout", cfg.suite.webarena.reset_timeout),
        (
            set(cfg.suite.infinity.difficulties) <= {"easy", "medium", "hard", "function"},
            "suite.infinity.difficulties must list some of: easy, medium, hard, function",
        ),
        _timeout_rule("suite.infinity.verifier_timeout", cfg.suite.infinity.verifier_timeout),
        (cfg.prompt.full_pages >= 0, "prompt.full_pages must not be negative; 0 means all pages"),
        (cfg.policy.unroll >= 1, "policy.unroll must be at least 1"),
        *_endpoint_rules(cfg),
        (cfg.lora.rank >= 0, "lora.rank must not be negative; 0 trains all params"),
        (
            bool(cfg.lora.target_modules) and set(cfg.lora.target_modules) <= set(PROJECTIONS),
            f"lora.target_modules must list some of: {', '.join(PROJECTIONS)}",
        ),
        (
            cfg.lora.create_new_adapter or cfg.lora.rank > 0,
            "lora.create_new_adapter=False trains the adapter at policy.path: set lora.rank to its "
            "rank",
        ),
        (
            cfg.mesh.microbatch_rows_per_device >= 1,
            "mesh.microbatch_rows_per_device must be at least 1",
        ),
        (cfg.engine.slots >= 1, "engine.slots must be at least 1"),
        (cfg.engine.tensor_parallel_size >= 1, "engine.tensor_parallel_size must be at least 1"),
        (
            cfg.engine.num_speculative_tokens >= 0,
            "engine.num_speculative_tokens must not be negative; 0: no speculative decoding",
        ),
        (
            cfg.engine.kv_cache_mib >= 0,
            "engine.kv_cache_mib must not be negative; 0 derives it from engine.slots",
        ),
        (
            cfg.bc.eval_decisions >= 0 and cfg.bc.held_out_demos >= 0,
            "bc.eval_decisions and bc.held_out_demos must not be negative; 0 disables them",
        ),
        (
            cfg.grpo.eval_interval == 0 or cfg.grpo.eval_episodes >= 1,
            "grpo.eval_episodes must be at least 1 with grpo.eval_interval",
        ),
        (cfg.seed >= 0, "seed must not be negative"),
        (cfg.suite.train_seeds_per_task >= 1, "suite.train_seeds_per_task must be at least 1"),
        (
            cfg.bc.demos_per_task >= 1 and cfg.bc.epochs >= 1 and cfg.bc.batch_episodes >= 1,
            "bc.demos_per_task, bc.epochs and bc.batch_episodes must be at least 1",
        ),
        (
            cfg.bc.eval_episodes >= 0,
            "bc.eval_episodes must not be negative; 0 measures decision accuracy only",
        ),
        (
            0 <= cfg.rollout.group_timeout <= _MAX_TIMEOUT,
            f"rollout.group_timeout must be 0 to {_MAX_TIMEOUT:,} seconds; 0 is no limit",
        ),
        (
            cfg.bc.checkpoint_interval >= 1 and cfg.grpo.checkpoint_interval >= 1,
            "bc.checkpoint_interval and grpo.checkpoint_interval must be at least 1",
        ),
        *_optimizer_rules("bc.optimizer", cfg.bc.optimizer),
        *_optimizer_rules("grpo.optimizer", cfg.grpo.optimizer),
        (
            cfg.bc.eval_interval >= 0 and cfg.grpo.eval_interval >= 0,
            "bc.eval_interval and grpo.eval_interval must not be negative; 0 disables them",
        ),
        (0 <= cfg.bc.mistake_rate <= 1, "bc.mistake_rate must be a probability, 0 to 1"),
        (cfg.bc.turns_per_demo >= 0, "bc.turns_per_demo must not be negative; 0 means all turns"),
        (
            cfg.grpo.updates >= 1 and cfg.grpo.tasks_per_update >= 1,
            "grpo.updates and grpo.tasks_per_update must be at least 1",
        ),
        (
            cfg.grpo.group_size >= 2,
            "grpo.group_size must be at least 2: advantages compare episodes",
        ),
        (
            0 <= cfg.log.screenshots_per_update <= cfg.grpo.tasks_per_update,
            "log.screenshots_per_update must be in [0, grpo.tasks_per_update]: "
            "one episode of a group keeps screenshots",
        ),
        (cfg.grpo.max_extra_groups >= 0, "grpo.max_extra_groups must not be negative"),
        (
            cfg.grpo.max_staleness >= 0,
            "grpo.max_staleness must not be negative; 0 is synchronous training",
        ),
        (cfg.grpo.minibatches >= 1, "grpo.minibatches must be at least 1"),
        (cfg.grpo.epochs >= 1, "grpo.epochs must be at least 1"),
        (
            cfg.grpo.minibatches <= cfg.grpo.tasks_per_update,
            "grpo.minibatches must be at most grpo.tasks_per_update: each minibatch needs a group",
        ),
        (
            # AWR and filtered BC are regressions on the batch and may take any number of steps.
            cfg.grpo.policy_loss == "clip"
            or cfg.grpo.advantage_estimator in ("success", "exponential")
            or cfg.grpo.minibatches * cfg.grpo.epochs == 1,
            "grpo.policy_loss=logp with a baseline needs grpo.minibatches=1 and grpo.epochs=1: "
            "later steps on a batch are off-policy, and this loss has no ratio to correct them; "
            "or choose grpo.policy_loss=clip",
        ),
        (0 <= cfg.grpo.clip_low < 1, "grpo.clip_low must be in [0, 1)"),
        (cfg.grpo.clip_high >= 0, "grpo.clip_high must not be negative"),
        (cfg.grpo.kl_beta >= 0, "grpo.kl_beta must not be negative; 0 removes the KL term"),
        (
            cfg.grpo.kl_reference == "initial" or cfg.grpo.minibatches * cfg.grpo.epochs > 1,
            "grpo.kl_reference=previous needs several optimizer steps per update: with "
            "grpo.minibatches=1 and grpo.epochs=1 the policy is still the reference",
        ),
        (
            0 <= cfg.grpo.negative_advantage_scale <= 1,
            "grpo.negative_advantage_scale must be in [0, 1]; 1 changes nothing",
        ),
        (
            cfg.grpo.step_advantage_weight >= 0,
            "grpo.step_advantage_weight must not be negative; 0 disables it",
        ),
        (
            cfg.grpo.step_advantage_weight == 0 or cfg.grpo.sequence_layout == "turns",
            "grpo.step_advantage_weight needs grpo.sequence_layout=turns: the release has one "
            "advantage per episode",
        ),
        (0 < cfg.grpo.step_discount <= 1, "grpo.step_discount must be above 0 and at most 1"),
        (cfg.grpo.std_eps >= 0, "grpo.std_eps must not be negative"),
        (cfg.grpo.awr_temperature > 0, "grpo.awr_temperature must be above 0"),
        (
            cfg.grpo.importance_weight_cap >= 1,
            "grpo.importance_weight_cap must be at least 1, the weight on policy",
        ),
        (
            cfg.grpo.sequence_layout == "turns"
            or (
                cfg.grpo.policy_loss == "logp"
                and cfg.grpo.kl_reference == "initial"
                and not cfg.is_off_policy
            ),
            "grpo.sequence_layout=webagent_r1_release needs grpo.policy_loss=logp, "
            "grpo.kl_reference=initial, grpo.max_staleness=0, grpo.success_replay=False and "
            "engine.quantization=none: it scores responses in a context that differs from that of "
            "sampling, so their ratio is meaningless",
        ),
        (
            cfg.rollout.max_concurrent_episodes >= 1,
            "rollout.max_concurrent_episodes must be at least 1",
        ),
        (cfg.rollout.max_turns >= 1, "rollout.max_turns must be at least 1"),
        (cfg.rollout.max_new_tokens >= 1, "rollout.max_new_tokens must be at least 1"),
        (cfg.rollout.infra_retries >= 0, "rollout.infra_retries must not be negative"),
        _timeout_rule("rollout.episode_timeout", cfg.rollout.episode_timeout),
        (
            cfg.guard.max_kl == 0 or cfg.grpo.kl_beta > 0 or cfg.grpo.kl_reference == "previous",
            "guard.max_kl needs grpo.kl_beta above 0: without a reference policy there is no KL",
        ),
        (cfg.guard.patience >= 1, "guard.patience must be at least 1; limits of 0 disable guards"),
        (cfg.rollout.temperature > 0, "rollout.temperature must be above 0: RL needs sampling"),
        (cfg.eval.temperature >= 0, "eval.temperature must not be negative"),
        (0 < cfg.rollout.top_p <= 1, "rollout.top_p must be above 0 and at most 1"),
        (0 < cfg.eval.top_p <= 1, "eval.top_p must be above 0 and at most 1"),
        (cfg.rollout.top_k >= 0, "rollout.top_k must not be negative; set 0 for all tokens"),
        (cfg.eval.top_k >= 0, "eval.top_k must not be negative; 0 means no limit"),
        (
            cfg.eval.max_repeats == 0 or cfg.eval.max_repeats >= 2,
            "eval.max_repeats must be at least 2, or 0 for no limit",
        ),
        (
            0 <= cfg.eval.max_new_tokens < cfg.engine.max_model_len,
            "eval.max_new_tokens must be below engine.max_model_len, the limit of prompt and "
            "response together; 0 means rollout.max_new_tokens",
        ),
        (cfg.eval.seeds_per_task >= 1, "eval.seeds_per_task must be at least 1"),
        (cfg.eval.attempts >= 1, "eval.attempts must be at least 1"),
        (
            cfg.eval.attempts == 1 or cfg.eval.temperature > 0,
            "eval.attempts above 1 needs eval.temperature above 0: greedy attempts are identical",
        ),
        (
            bool(cfg.eval.max_turns) and min(cfg.eval.max_turns) >= 1,
            "eval.max_turns must list turn limits of at least 1, such as 30, or 5,10,15,20,25,30",
        ),
        (
            cfg.rollout.max_new_tokens < cfg.engine.max_model_len,
            "rollout.max_new_tokens must be below engine.max_model_len, the limit of prompt and "
            "response together",
        ),
        _row_tokens_rule(cfg),
    )
    for is_valid, message in rules:
        if not is_valid:
            raise ConfigError(message)


def _row_tokens_rule(cfg: RunConfig) -> tuple[bool, str]:
    """Return validity and error message of the rule for the training rows; it names short ones."""
    length = cfg.engine.max_model_len
    row_tokens = {"bc": cfg.bc.row_tokens, "grpo": cfg.grpo.row_tokens}
    options = [f"--config.{s}.row_tokens={length}" for s, n in row_tokens.items() if n < length]
    message = f"engine.max_model_len={length} needs training rows that fit any turn: set "
    return cfg.policy.kind == "openai" or not options, message + " ".join(options)


def _timeout_rule(name: str, seconds: float) -> tuple[bool, str]:
    """Return validity and error message of the rule for the time limit at option `name`."""
    message = f"{name} must be above 0 and at most {_MAX_TIMEOUT:,} seconds"
    return 0 < seconds <= _MAX_TIMEOUT, message


def _optimizer_rules(name: str, optimizer: OptimizerConfig) -> tuple[tuple[bool, str], ...]:
    """Return validity and error message of each rule for the optimizer at option `name`."""
    return (
        (optimizer.learning_rate >= 0, f"{name}.learning_rate must not be negative"),
        (
            0 <= optimizer.warmup_fraction <= 1,
            f"{name}.warmup_fraction must be a fraction of all steps, 0 to 1",
        ),
        (
            0 <= optimizer.b1 < 1 and 0 <= optimizer.b2 < 1,
            f"{name}.b1 and {name}.b2 must be at least 0 and below 1",
        ),
        (optimizer.weight_decay >= 0, f"{name}.weight_decay must not be negative; 0 disables it"),
        (
            optimizer.max_grad_norm > 0,
            f"{name}.max_grad_norm must be above 0; 1e9 disables clipping",
        ),
    )


def _endpoint_rules(cfg: RunConfig) -> tuple[tuple[bool, str], ...]:
    """Return validity and error message of each rule for chat endpoints."""
    endpoint = cfg.policy.endpoint
    if cfg.policy.kind == "weights":
        message = (
            "policy.endpoint is set, but policy.kind=weights runs the local policy: set "
            "--config.policy.kind=openai, or omit policy.endpoint.url and policy.endpoint.model"
        )
        return ((not endpoint.url and not endpoint.model, message),)
    return (
        (
            endpoint.url.startswith(("http://", "https://")),
            f"policy.endpoint.url={endpoint.url!r} must begin with http:// or https:// and include "
            "the version: https://api.openai.com/v1, or http://localhost:8000/v1 for a local "
            "server",
        ),
        (bool(endpoint.model), "policy.endpoint.model must name the model for policy.kind=openai"),
        (
            cfg.prompt.template != "auto" or cfg.policy.path != "webagent-tiny",
            "prompt.template must be set for policy.kind=openai: webarena describes the actions to "
            "an instruct model, compact is for policies trained with it. Set policy.path to the "
            "tokenizer of the model: that of webagent-tiny counts several times as many tokens",
        ),
        (endpoint.concurrency >= 1, "policy.endpoint.concurrency must be at least 1"),
        (endpoint.retries >= 0, "policy.endpoint.retries must not be negative; 0 disables retries"),
        _timeout_rule("policy.endpoint.timeout", endpoint.timeout),
        *_extra_body_rules(endpoint.extra_body),
        (
            cfg.rollout.top_k == cfg.eval.top_k == 0,
            "rollout.top_k and eval.top_k must be 0 for policy.kind=openai: many endpoints support "
            "only top_p. For those that support top_k, set policy.endpoint.extra_body",
        ),
    )


def _extra_body_rules(text: str) -> tuple[tuple[bool, str], ...]:
    """Return validity and error message of each rule for policy.endpoint.extra_body."""
    try:
        fields = json.loads(text or "{}")
    except (ValueError, RecursionError):
        fields = None
    reserved = [name for name in _REQUEST_FIELDS if isinstance(fields, dict) and name in fields]
    return (
        (
            isinstance(fields, dict),
            f"policy.endpoint.extra_body={text!r} must be a JSON object, such as "
            '\'{"reasoning_effort": "low"}\' (with the single quotes in a shell)',
        ),
        (
            not reserved,
            f"policy.endpoint.extra_body must not contain {', '.join(reserved)}: other options set "
            "these fields. Use policy.endpoint.model, seed, and temperature, top_p and "
            "max_new_tokens of rollout and eval; responses cannot be streamed",
        ),
    )


def to_config_dict(cfg: RunConfig) -> ml_collections.ConfigDict:
    """Convert the config to a ConfigDict, which command-line flags can override."""
    return ml_collections.ConfigDict(dataclasses.asdict(cfg))


def get_variant(variants: Mapping[str, T], name: str) -> T:
    """Return the variant of a config file; ConfigError lists the variants if there is none."""
    if name not in variants:
        names = ", ".join(filter(None, variants))
        raise ConfigError(f"unknown variant {name!r}; available: {names}")
    return variants[name]


def from_config_dict(values: ml_collections.ConfigDict | Mapping[str, Any]) -> RunConfig:
    """Build a validated RunConfig.

    Raises:
        ConfigError: an option is unknown or invalid; the message lists the valid ones.
    """
    plain = values.to_dict() if isinstance(values, ml_collections.ConfigDict) else dict(values)
    return typing.cast(RunConfig, _build(RunConfig, plain, "config"))


def _build(cls: type, values: Mapping[str, Any], path: str) -> Any:
    hints = typing.get_type_hints(cls)
    unknown = sorted(set(values) - set(hints))
    if unknown:
        raise ConfigError(
            f"unknown option {path}.{unknown[0]}; {path} has: {', '.join(sorted(hints))}"
        )
    return cls(**{k: _convert(hints[k], v, f"{path}.{k}") for k, v in values.items()})


def _items(hint: Any, value: Any) -> list[Any]:
    """Return the items of a list option; flags pass "a,b" as one string and "7" as a number."""
    items = [value] if isinstance(value, str | int) else list(value)
    if hint is not str:
        return items
    strings = [str(item) if type(item) is int else item for item in items]
    parts = [item.split(",") if isinstance(item, str) else [item] for item in strings]
    return [name for names in parts for name in names if name != ""]


def _convert(hint: Any, value: Any, path: str) -> Any:
    """Return `value` converted to the declared type of the field."""
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, Mapping):
            raise ConfigError(
                f"{path} is a group of options; set one of its options instead of {value!r}"
            )
        return _build(typing.cast(type, hint), value, path)
    origin = typing.get_origin(hint)
    if origin is Literal:
        if value not in typing.get_args(hint):
            choices = ", ".join(map(str, typing.get_args(hint)))
            raise ConfigError(f"{path}={value!r} is not one of: {choices}")
        return value
    if origin is tuple:
        item_hint = typing.get_args(hint)[0]
        return tuple(_convert(item_hint, item, path) for item in _items(item_hint, value))
    if origin in (typing.Union, types.UnionType):
        raise TypeError(f"{path}: config fields have one type each, not {hint}")
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not hint:
        raise ConfigError(f"{path}={value!r} is not of type {hint.__name__}")
    # config.json cannot contain infinity or NaN.
    if hint is float and not math.isfinite(value):
        raise ConfigError(f"{path}={value!r} must be finite")
    return value
