"""Check of the chat endpoints of the policy and of the judge, with one request each."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from webagent_jax.config import ConfigError, EndpointConfig, RunConfig
from webagent_jax.doctor.check_result import CheckResult, failure, from_error, ok
from webagent_jax.endpoint import ChatEndpoint, ChatRequest
from webagent_jax.types import InfraError, Message

_TIMEOUT = 60.0  # seconds; a server may load its model first
_MAX_TOKENS = 16  # the smallest value that some servers accept
_TEST_MESSAGES = (Message("user", "Say yes."),)


def check(cfg: RunConfig, workdir: Path) -> Iterator[CheckResult]:
    """Yield the results about the endpoints that the config uses."""
    del workdir
    if cfg.policy.kind == "openai":
        yield _send_test_request("policy endpoint", cfg.policy.endpoint, "policy.endpoint")
    judge = cfg.suite.webarena.judge
    if cfg.suite.name == "webarena_lite" and judge.url:
        options = "suite.webarena.judge"
        if judge.api_key_env and not os.environ.get(judge.api_key_env):
            yield failure(
                "judge",
                f"the variable of {options}.api_key_env={judge.api_key_env!r} is not set",
                f"export the judge's key in {judge.api_key_env}, or leave the option empty",
            )
            return
        config = EndpointConfig(judge.url, judge.model, judge.api_key_env)
        yield _send_test_request("judge", config, options)


def _send_test_request(subject: str, config: EndpointConfig, options: str) -> CheckResult:
    start = time.monotonic()
    try:
        # Without retries, the result contains the first error.
        endpoint = ChatEndpoint(replace(config, retries=0))
        endpoint.chat(ChatRequest(_TEST_MESSAGES, _MAX_TOKENS, temperature=0.0), _TIMEOUT)
    except (ConfigError, InfraError) as error:
        return from_error(subject, error, f"check {options}.url and its server")
    return ok(
        subject, f"{config.model} at {config.url} responded in {time.monotonic() - start:.1f} s"
    )
