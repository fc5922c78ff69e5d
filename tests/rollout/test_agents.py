"""Tests of the engine agent: requests without a response."""

from __future__ import annotations

from concurrent.futures import Future

import numpy as np
import pytest

from tests.learn import tiny
from tests.rollout.fakes import TASK
from webagent_jax import inference
from webagent_jax.rollout import EngineAgent
from webagent_jax.types import AgentRequest, Completion, InfraError, Observation

REQUEST = AgentRequest(
    TASK, "Press 1", 0, Observation("", "http://fake/"), (), np.array([1, 2], np.int32), seed=0
)


def test_timed_out_request_gets_no_slot():
    with inference.Engine(tiny.MODEL, tiny.make_params(0), slots=1, max_model_len=64) as engine:
        engine.sleep()
        agent = EngineAgent(engine, (), max_new_tokens=4, temperature=1.0, timeout=0.1)
        with pytest.raises(InfraError, match="gave no response within"):
            agent.respond(REQUEST)
        engine.wake_up()
        # The engine admits requests in order, so it has read the canceled one before this one.
        engine.submit([1], max_new_tokens=1).result(120)
        assert engine.stats().requests == 1


class CancelingSampler:
    """Sampler that cancels every request."""

    def submit(self, prompt_ids, **options):
        future: Future[Completion] = Future()
        future.cancel()
        return future


def test_canceled_request_raises_infra_error():
    agent = EngineAgent(CancelingSampler(), (), max_new_tokens=4, temperature=1.0)
    with pytest.raises(InfraError, match="the request was canceled"):
        agent.respond(REQUEST)
