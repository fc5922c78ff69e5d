"""Resending of stored prompts to a policy, for example with an edited page.

The user may edit each message of the prompt. Unchanged messages enter the prompt as in the run, so
that an unchanged prompt has the recorded token ids. Responses are not executed.
"""

from __future__ import annotations

import dataclasses
import functools
import secrets
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from webagent_jax import config, types
from webagent_jax.agent import TEMPLATES, ChatTokenizer, PromptFormat, actions, build_messages
from webagent_jax.config import ConfigError, PolicyConfig, RunConfig
from webagent_jax.cpu_priority import lower_priority
from webagent_jax.report import trajectories
from webagent_jax.report.episode_pages import EpisodeLogFile
from webagent_jax.report.run_list import ListedRun
from webagent_jax.report.token_text import TokenDecoder
from webagent_jax.tracking import atomic_files, episode_log

if TYPE_CHECKING:
    from webagent_jax.endpoint import ChatEndpoint
    from webagent_jax.inference import Engine

Json = dict[str, Any]

MAX_SAMPLES = 8  # maximum number of responses to one request
MAX_TEMPERATURE = 5.0  # above it, responses are noise

_FIX = "Start the server with another policy: webagent view RUNS --policy=PATH_OR_NAME."


class BusyError(Exception):
    """Request while another one runs."""


@dataclass(frozen=True)
class TurnId:
    """Turn of an episode of a run."""

    episode: str  # log and index of the episode in it: "eval/0"
    turn: int  # index of the turn


@dataclass(frozen=True)
class PromptEdit:
    """Edited messages and sampling options."""

    messages: Sequence[str | None]  # new text of each message; None leaves it as in the run
    temperature: float  # sampling temperature; 0: greedy
    num_samples: int  # number of responses

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Check the values that a page sends.

        Raises:
            ConfigError: a value is missing or invalid.
        """
        messages, num_samples = values.get("messages"), values.get("samples")
        temperature = values.get("temperature")
        if not isinstance(messages, list) or not all(
            isinstance(text, str | None) for text in messages
        ):
            raise ConfigError("messages must be a list with a string or null for each message")
        if not isinstance(num_samples, int) or not 1 <= num_samples <= MAX_SAMPLES:
            raise ConfigError(f"the number of samples must be 1 to {MAX_SAMPLES}")
        if not isinstance(temperature, int | float) or not 0 <= temperature <= MAX_TEMPERATURE:
            raise ConfigError(f"the temperature must be 0 to {MAX_TEMPERATURE:g}")
        return cls(messages, float(temperature), num_samples)


class PromptSender:
    """Sends prompts of stored turns to a policy, one request at a time; a context manager.

    The first request loads the policy, which stays loaded until another one is needed.

    Args:
        policy: policy or endpoint for the turns of all runs; None uses the policy of each run.
    """

    def __init__(self, policy: PolicyConfig | None = None) -> None:
        self._policy_override = policy
        self._lock = threading.Lock()  # held while a request runs
        self._policy: _Policy | None = None
        # A run on the same machine needs the processor.
        self._executor = ThreadPoolExecutor(1, "resend", initializer=lower_priority)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._executor.shutdown()
        if self._policy is not None:
            self._policy.close()

    def prompt(self, listed: ListedRun, turn_id: TurnId) -> Json:
        """Return the messages of a turn, and the policy and options of a request.

        Raises:
            LookupError: the run has no such turn.
            ConfigError: the prompt cannot be rebuilt.
        """
        stored = _StoredTurn.read(listed, turn_id, self._policy_override)
        loaded = self._policy
        return {
            "messages": [{"role": m.role, "text": m.text} for m in stored.messages()],
            "policy": _policy_name(stored.cfg.policy),
            "note": stored.note,
            "is_policy_of_run": self._policy_override is None,
            "is_loaded": loaded is not None and loaded.is_loaded and loaded.is_current(stored.cfg),
            "temperature": (
                stored.cfg.eval if stored.is_evaluation else stored.cfg.rollout
            ).temperature,
            "max_temperature": MAX_TEMPERATURE,
            "max_samples": MAX_SAMPLES,
        }

    def send(self, listed: ListedRun, turn_id: TurnId, edit: PromptEdit) -> Json:
        """Load the policy if needed, and return its responses.

        Raises:
            BusyError: another request runs.
            LookupError: the run has no such turn.
            ConfigError: the policy cannot be loaded, the prompt is too long, or the endpoint cannot
                respond.
            InfraError: there was no response in time.
        """
        if not self._lock.acquire(blocking=False):
            raise BusyError("another request is running: wait for its response")
        try:
            return self._executor.submit(self._send, listed, turn_id, edit).result()
        finally:
            self._lock.release()

    def _send(self, listed: ListedRun, turn_id: TurnId, edit: PromptEdit) -> Json:
        stored = _StoredTurn.read(listed, turn_id, self._policy_override)
        policy = self._open_policy(stored.cfg)
        messages = _edited(stored.messages(), edit.messages, policy.tokenizer)
        prompt_ids = policy.tokenizer.prompt_ids(messages)
        # The check comes before the params are loaded.
        policy.check_length(stored, prompt_ids)
        completions = policy.respond(stored, messages, prompt_ids, edit)
        is_unchanged = all(text is None for text in edit.messages)
        return {
            "responses": [
                trajectories.response(
                    _turn(stored.turn, prompt_ids, completion, policy.tokenizer), policy.decoder
                )
                for completion in completions
            ],
            "prompt_tokens": len(prompt_ids),
            # False for another tokenizer or chat template than that of the run.
            "is_recorded_prompt": is_unchanged
            and np.array_equal(prompt_ids, stored.turn.prompt_ids),
            "is_unchanged": is_unchanged,
        }

    def _open_policy(self, cfg: RunConfig) -> _Policy:
        current = self._policy
        if current is not None and current.is_current(cfg):
            return current
        # Closed first: two policies may not fit the memory.
        self._policy = None
        if current is not None:
            current.close()
        self._policy = _Policy(cfg)
        return self._policy


@dataclass(frozen=True)
class _StoredTurn:
    """Stored turn, and the config of the policy that its prompt is sent to."""

    cfg: RunConfig  # config of the run, with that policy
    is_evaluation: bool  # whether the options of evaluation apply
    note: str  # difference between that policy and the one of the turn; may be empty
    episode: types.Episode
    index: int  # index of the turn

    @classmethod
    def read(cls, listed: ListedRun, turn_id: TurnId, policy: PolicyConfig | None) -> Self:
        log, episode = _read_episode(listed, turn_id.episode)
        if not 0 <= turn_id.turn < len(episode.turns):
            raise LookupError(f"episode {turn_id.episode} has no turn {turn_id.turn + 1}")
        cfg = _run_config(listed)
        note = ""
        if policy is None:
            policy, note = _own_policy(listed.workdir, log, cfg.policy)
        return cls(_with_policy(cfg, policy), log.update is None, note, episode, turn_id.turn)

    @property
    def turn(self) -> types.Turn:
        return self.episode.turns[self.index]

    def messages(self) -> list[types.Message]:
        prompt = self.cfg.prompt
        # `_run_config` has replaced "auto".
        return build_messages(
            PromptFormat(TEMPLATES[prompt.template], prompt.thinking, prompt.full_pages),
            self.episode.intent,
            self.episode.turns[: self.index],
            self.turn.observation,
        )


class _Policy:
    """Tokenizer of a policy, and its engine from the first response on."""

    def __init__(self, cfg: RunConfig) -> None:
        # Import on demand: the module imports JAX.
        from webagent_jax import policy

        try:
            # Weights are downloaded before their version is read.
            self._folders = _folders(cfg.policy.path, needs_weights=cfg.policy.kind == "weights")
            directory = policy.tokenizer_dir(cfg.policy.path)
        except FileNotFoundError as error:
            raise ConfigError(f"{error}. {_FIX}") from error
        self._cfg = cfg
        self._version = _last_change(self._folders)
        self.tokenizer = ChatTokenizer(directory)
        self.decoder = TokenDecoder(directory)
        self._max_model_len = cfg.engine.max_model_len
        if not self._is_endpoint:
            positions = policy.load_config(directory).max_positions
            # Another policy than that of the run may be shorter.
            self._max_model_len = min(self._max_model_len, positions)
        self._engine: Engine | None = None

    @property
    def is_loaded(self) -> bool:
        return self._is_endpoint or self._engine is not None

    @property
    def _is_endpoint(self) -> bool:
        return self._cfg.policy.kind == "openai"

    def is_current(self, cfg: RunConfig) -> bool:
        """Return whether this is the policy of a config, and its files have not changed."""
        sections = ((c.policy, c.engine, c.prompt) for c in (cfg, self._cfg))
        return len(set(sections)) == 1 and _last_change(self._folders) == self._version

    def check_length(self, stored: _StoredTurn, prompt_ids: types.IntArray) -> None:
        """Check that prompt and response fit.

        Raises:
            ConfigError: the prompt is too long.
        """
        from webagent_jax.rollout import runtime

        sampling = runtime.sampling_options(stored.cfg, evaluation=stored.is_evaluation)
        limit = self._max_model_len - sampling.max_new_tokens
        if len(prompt_ids) > limit:
            raise ConfigError(
                f"the prompt has {len(prompt_ids):,} tokens, and at most {limit:,} fit: "
                f"engine.max_model_len is {self._max_model_len:,}, and {sampling.max_new_tokens:,} "
                "are for the response. Shorten the prompt."
            )

    def respond(
        self,
        stored: _StoredTurn,
        messages: Sequence[types.Message],
        prompt_ids: types.IntArray,
        edit: PromptEdit,
    ) -> list[types.Completion]:
        """Return the responses to a prompt; those of an endpoint have no log-probabilities."""
        from webagent_jax.inference import EngineError
        from webagent_jax.rollout import runtime

        # Not in the config, which accepts only the temperatures of a training or evaluation.
        agent = runtime.make_policy_agent(
            stored.cfg,
            self.tokenizer,
            self._open_source(),
            evaluation=stored.is_evaluation,
            temperature=edit.temperature,
        )
        requests = [
            types.AgentRequest(
                task=stored.episode.task,
                intent=stored.episode.intent,
                turn=stored.index,
                observation=stored.turn.observation,
                messages=messages,
                prompt_ids=prompt_ids,
                # Every request draws other samples.
                seed=secrets.randbits(31),
            )
            for _ in range(edit.num_samples)
        ]
        try:
            with ThreadPoolExecutor(edit.num_samples) as threads:
                return list(threads.map(agent.respond, requests))
        except EngineError:
            # A failed engine rejects all later requests; the next request makes a new one.
            self.close()
            raise

    def _open_source(self) -> Engine | ChatEndpoint:
        import jax

        from webagent_jax.endpoint import ChatEndpoint
        from webagent_jax.policy import loading
        from webagent_jax.rollout import runtime

        if self._is_endpoint:
            # A new client, because the user may have fixed the error of the last one.
            return ChatEndpoint(self._cfg.policy.endpoint)
        if self._engine is None:
            options = self._cfg.engine
            engine = dataclasses.replace(
                options,
                slots=MAX_SAMPLES,
                max_model_len=self._max_model_len,
                # This machine may have fewer devices than that of the run.
                tensor_parallel_size=min(options.tensor_parallel_size, jax.local_device_count()),
            )
            # The policy may have another template than the run. The engine reads it only for the
            # prefix that it computes in advance.
            prompt = dataclasses.replace(self._cfg.prompt, template="auto")
            cfg = dataclasses.replace(self._cfg, engine=engine, prompt=prompt)
            model, snapshot = loading.initial_policy(cfg)
            assert model is not None and snapshot is not None  # not an endpoint
            self._engine = runtime.make_engine(cfg, self.tokenizer, model, snapshot)
        return self._engine

    def close(self) -> None:
        """Free the memory of the engine."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None


def _read_episode(listed: ListedRun, name: str) -> tuple[EpisodeLogFile, types.Episode]:
    """Return an episode and its log.

    Raises:
        LookupError: the run has no such episode.
    """
    log_id, _, number = name.rpartition("/")
    logs = {log.id: log for log in (listed.run.logs if listed.run else ())}
    if log_id not in logs or not number.isdecimal():
        raise LookupError(f"this run has no episode {name}")
    try:
        return logs[log_id], episode_log.read_episode(logs[log_id].path, int(number))
    except IndexError as error:
        raise LookupError(f"this run has no episode {name}") from error


def _run_config(listed: ListedRun) -> RunConfig:
    """Return the config of a run with the template of its prompts.

    Raises:
        ConfigError: there is none, or another version of the package wrote it.
    """
    if listed.run is None or not listed.run.config:
        raise ConfigError("this run has no config.json, from which the prompt is rebuilt")
    try:
        cfg = config.from_config_dict(listed.run.config)
    except ConfigError as error:
        raise ConfigError(f"another version of webagent_jax wrote config.json: {error}") from error
    if cfg.prompt.template != "auto":
        return cfg
    # Import on demand: the module imports JAX.
    from webagent_jax.policy import prompt_record

    return prompt_record.with_template(cfg)


def _with_policy(cfg: RunConfig, policy: PolicyConfig) -> RunConfig:
    """Return the config with another policy, and options that are valid for it."""
    length = cfg.engine.max_model_len
    rollout, evaluation = cfg.rollout, cfg.eval
    if policy.kind == "openai":  # many endpoints do not support top_k
        rollout = dataclasses.replace(rollout, top_k=0)
        evaluation = dataclasses.replace(evaluation, top_k=0)
    return dataclasses.replace(
        cfg,
        policy=policy,
        # Training rows are of no use here, but those of an endpoint may be too short for a policy.
        bc=dataclasses.replace(cfg.bc, row_tokens=max(cfg.bc.row_tokens, length)),
        grpo=dataclasses.replace(cfg.grpo, row_tokens=max(cfg.grpo.row_tokens, length)),
        rollout=rollout,
        eval=evaluation,
    )


def _own_policy(
    workdir: Path, log: EpisodeLogFile, configured: PolicyConfig
) -> tuple[PolicyConfig, str]:
    """Return the policy that sampled a log, or the closest one on disk, and how it differs.

    Raises:
        ConfigError: the policy is missing.
    """

    def local(folder: Path) -> PolicyConfig:
        if not folder.is_dir():
            raise ConfigError(f"{folder}, which sampled this turn, is missing. {_FIX}")
        return dataclasses.replace(configured, kind="weights", path=str(folder))

    if log.update is None:
        if log.id in ("bc", "grpo"):
            return local(workdir / log.id / "policy"), ""
        # The config names the policy of all other evaluations.
        note = "The weights have changed since this evaluation began."
        return configured, note if _has_changed(configured, workdir / "policy.json") else ""
    for folder in (workdir / "grpo" / "policy", workdir / "policy"):
        if folder.is_dir():
            return local(folder), "This is the policy after training, not that of this update."
    initial = workdir / "bc" / "policy"
    policy = local(initial) if initial.is_dir() else configured
    return policy, "This is the policy before training, not that of this update."


def _has_changed(policy: PolicyConfig, record: Path) -> bool:
    """Return whether a local policy has other files than the policy.json of an evaluation."""
    if policy.kind != "weights" or not record.exists():
        return False
    try:
        last_change = _last_change(_folders(policy.path, download=False))
    except FileNotFoundError:  # the error of a missing policy follows when it is loaded
        return False
    # A checksum reads all weights, so it is computed only if a file is newer.
    if last_change <= record.stat().st_mtime_ns:
        return False
    return _checksum(policy.path, last_change) != atomic_files.read_json(record)["sha256"]


@functools.lru_cache
def _checksum(path: str, last_change: int) -> str:
    """Return the checksum of a policy; `last_change` distinguishes its versions."""
    from webagent_jax.policy import weights

    checksum: str = weights.checksum(path)
    return checksum


def _folders(path: str, *, download: bool = True, needs_weights: bool = True) -> list[Path]:
    """Return the folders of the adapters and the base of a policy, which are not merged.

    Raises:
        PolicyNotFoundError, ConfigError: see `hf.resolve_dir`.
    """
    # Import on demand: the module imports JAX.
    from webagent_jax.policy import hf

    adapters, base = hf.adapter_chain(path, download=download)
    return [*adapters, hf.resolve_dir(base, download=download, needs_weights=needs_weights)]


def _policy_name(policy: PolicyConfig) -> str:
    if policy.kind == "openai":
        return f"{policy.endpoint.model} at {policy.endpoint.url}"
    return policy.path


def _edited(
    messages: Sequence[types.Message], texts: Sequence[str | None], tokenizer: ChatTokenizer
) -> list[types.Message]:
    """Return the messages with new texts.

    Raises:
        ConfigError: the number of texts is not that of the messages.
    """
    if len(texts) != len(messages):
        raise ConfigError(f"the prompt has {len(messages)} messages, but {len(texts)} were sent")
    return [
        _with_valid_ids(message, tokenizer) if text is None else types.Message(message.role, text)
        for message, text in zip(messages, texts, strict=True)
    ]


def _with_valid_ids(message: types.Message, tokenizer: ChatTokenizer) -> types.Message:
    """Return the message; without its token ids if they belong to another tokenizer."""
    if message.token_ids is None or tokenizer.decode(message.token_ids) == message.text:
        return message
    return types.Message(message.role, message.text)


def _turn(
    stored: types.Turn,
    prompt_ids: types.IntArray,
    completion: types.Completion,
    tokenizer: ChatTokenizer,
) -> types.Turn:
    text = tokenizer.decode(completion.token_ids)
    return types.Turn(prompt_ids, completion, text, actions.parse(text), stored.observation)


def _last_change(folders: Sequence[Path]) -> int:
    """Return the time of the last change of a file, which differs after another training."""
    files = (path for folder in folders for path in folder.rglob("*") if path.is_file())
    return max((file.stat().st_mtime_ns for file in files), default=0)
