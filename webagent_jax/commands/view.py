r"""Serve a page with all runs of a directory: success, options, curves and reports, updated live.

webagent view runs
webagent view runs/quickstart --port=8041
webagent view runs --policy=runs/grpo/policy
webagent view runs --config.policy.kind=openai --config.policy.path=Qwen/Qwen2.5-3B-Instruct \
    --config.policy.endpoint.model=NAME --config.policy.endpoint.url=http://localhost:8000/v1

Open http://localhost:8040/. Only this machine can connect.

The prompt of each turn can be sent again with edits: to the policy of its run, or to the one of
--policy or --config.policy. Weights are loaded by the first request.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from absl import flags

from webagent_jax.cli.run_config import run_config
from webagent_jax.config import ConfigError, EndpointConfig, PolicyConfig

_PORT = flags.DEFINE_integer(
    "port", 8040, "Port to listen on, at 127.0.0.1.", lower_bound=1, upper_bound=65535
)
_POLICY = flags.DEFINE_string(
    "policy",
    "",
    "Policy that prompts are sent to, as policy.path of a config; empty for that of each run.",
)


def main(argv: Sequence[str]) -> None:
    """Serve the runs until Ctrl-C."""
    from webagent_jax.report import server
    from webagent_jax.report.resend import PromptSender

    if len(argv) != 2:
        raise ConfigError("name one directory of runs, such as: webagent view runs")
    root = Path(argv[1])
    if not root.is_dir():
        raise ConfigError(f"{root} is not a directory: name the directory of your runs")
    print(f"Runs in {root}: open http://localhost:{_PORT.value}/ (stop with Ctrl-C)", flush=True)
    with PromptSender(_policy()) as sender:
        server.serve_forever(root, _PORT.value, sender)


def _policy() -> PolicyConfig | None:
    """Return the policy of --policy or --config.policy; None if neither is set.

    Raises:
        ConfigError: --config.policy has options, but names no policy.
    """
    policy, default = run_config().policy, PolicyConfig()
    if _POLICY.value:
        endpoint = EndpointConfig()
        return dataclasses.replace(policy, kind="weights", path=_POLICY.value, endpoint=endpoint)
    if policy == default:
        return None
    if (policy.kind, policy.path) == (default.kind, default.path):
        raise ConfigError("options of --config.policy need a policy: set --policy=PATH as well")
    return policy
