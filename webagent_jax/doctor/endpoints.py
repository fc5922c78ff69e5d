"""Check of the chat endpoints of the policy and of the judge, with one request each."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from webagent_jax.config import ConfigError, EndpointConfig, JudgeConfig, RunConfig
from webagent_jax.doctor.check_result import CheckResult, from_error, ok
from webagent_jax.endpoint import ChatEndpoint, ChatRequest
from webagent_jax.suites.webarena.suite import make_judge
from webagent_jax.types import InfraError, Message

_TIMEOUT = 60.0  # seconds; a server may load its model first
_TEST_MESSAGES = (Message("user", "Say yes."),)


def check(cfg: RunConfig, workdir: Path) -> Iterator[CheckResult]:
    """Yield the results about the endpoints that the config uses."""
    del workdir
    if cfg.policy.kind == "openai":
        yield _check_policy(cfg.policy.endpoint, cfg.rollout.max_new_tokens)
    if cfg.suite.name == "webarena_lite" and cfg.suite.webarena.judge.url:
        yield _check_judge(cfg.suite.webarena.judge)


def _check_policy(config: EndpointConfig, max_tokens: int) -> CheckResult:
    start = time.monotonic()
    try:
        # Without retries, the result contains the first error.
        endpoint = ChatEndpoint(replace(config, retries=0))
        # The limit of the run: reasoning models need many tokens, and other servers allow few.
        endpoint.chat(ChatRequest(_TEST_MESSAGES, max_tokens, temperature=0.0), _TIMEOUT)
    except (ConfigError, InfraError) as error:
        fix = "check policy.endpoint.url and its server"
        return from_error("policy endpoint", error, fix)
    return ok(
        "policy endpoint", f"{config.model} at {config.url} responded in {_seconds_since(start)}"
    )


def _check_judge(config: JudgeConfig) -> CheckResult:
    start = time.monotonic()
    try:
        judge = make_judge(config, os.environ)
        assert judge is not None  # the config has a url
        replace(judge, tries=1, timeout=_TIMEOUT).check()
    except (ConfigError, InfraError) as error:
        return from_error("judge", error, "check suite.webarena.judge and its server")
    return ok("judge", f"{config.model} at {config.url} gave a verdict in {_seconds_since(start)}")


def _seconds_since(start: float) -> str:
    return f"{time.monotonic() - start:.1f} s"
