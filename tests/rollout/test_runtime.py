"""The runtime of episodes samples evaluation by `eval` and everything else by `rollout`."""

from __future__ import annotations

import dataclasses
from concurrent.futures import Future

import numpy as np
import pytest

from configs import quickstart
from webagent_jax import config
from webagent_jax.config import EvalConfig, RolloutConfig
from webagent_jax.policy.loading import initial_policy
from webagent_jax.rollout.runtime import RolloutRuntime
from webagent_jax.tracking.progress import NullProgress
from webagent_jax.types import AgentRequest, Completion, Observation, Task

SMOKE = config.from_config_dict(quickstart.get_config("smoke"))
REQUEST = AgentRequest(
    Task("t", "s", (), "", ""), "", 0, Observation("", ""), (), np.ones(3, np.int32), seed=1
)
SAMPLING = ("temperature", "top_p", "top_k", "max_new_tokens")


@pytest.mark.browser
def test_evaluation_has_sampling_options_of_its_own(monkeypatch):
    cfg = dataclasses.replace(
        SMOKE,
        rollout=RolloutConfig(max_concurrent_episodes=1, max_new_tokens=96),
        eval=EvalConfig(
            temperature=0.5, top_p=0.9, top_k=7, max_new_tokens=200, max_repeats=5, max_turns=(8,)
        ),
    )
    requests = []

    def submit(prompt_ids, **options):
        requests.append(tuple(options[name] for name in SAMPLING))
        future = Future()
        empty = np.zeros(0, np.int32)
        future.set_result(Completion(empty, empty.astype(np.float32), empty, "stop"))
        return future

    with RolloutRuntime(cfg, NullProgress(), *initial_policy(cfg)) as stage:
        monkeypatch.setattr(stage.engine, "submit", submit)
        stage.policy_agent().respond(REQUEST)
        stage.policy_agent(evaluation=True).respond(REQUEST)
        training, evaluation = stage.episode_config(8), stage.episode_config(8, evaluation=True)
    assert requests == [(1.0, 1.0, 0, 96), (0.5, 0.9, 7, 200)]
    assert (training.max_prompt_tokens, training.max_repeats) == (512 - 96, 0)
    assert (evaluation.max_prompt_tokens, evaluation.max_repeats) == (512 - 200, 5)
