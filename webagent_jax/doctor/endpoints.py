"""The language models that are asked over HTTP: the policy's and the judge's, with one request."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from webagent_jax.config import ConfigError, EndpointConfig, RunConfig
from webagent_jax.doctor.findings import Finding, broken, from_error, ok
from webagent_jax.endpoint import ChatEndpoint, ChatRequest
from webagent_jax.types import InfraError, Message

_TIMEOUT = 60.0  # seconds; a server may load its model first
_TOKENS = 16  # some take no fewer
_HELLO = (Message("user", "Say yes."),)


def check(cfg: RunConfig, workdir: Path) -> Iterator[Finding]:
    del workdir
    if cfg.policy.kind == "openai":
        yield _ask("policy endpoint", cfg.policy.endpoint, "policy.endpoint")
    judge = cfg.suite.webarena.judge
    if cfg.suite.name == "webarena_lite" and judge.url:
        where = "suite.webarena.judge"
        if judge.key_variable and not os.environ.get(judge.key_variable):
            yield broken(
                "judge",
                f"{where}.key_variable={judge.key_variable!r} is not set",
                "export the judge's key in it, or leave the option empty",
            )
            return
        config = EndpointConfig(judge.url, judge.model, judge.key_variable)
        yield _ask("judge", config, where)


def _ask(subject: str, config: EndpointConfig, options: str) -> Finding:
    begun = time.monotonic()
    try:
        endpoint = ChatEndpoint(replace(config, retries=0))
        endpoint.chat(ChatRequest(_HELLO, _TOKENS, temperature=0.0), _TIMEOUT)
    except (ConfigError, InfraError) as error:
        return from_error(subject, error, f"look at {options}.url, and at its server")
    return ok(
        subject, f"{config.model} at {config.url} replied in {time.monotonic() - begun:.1f} s"
    )
