"""Rollouts: episode loop, agents, parallel collection and group scheduling."""

from webagent_jax.rollout.agents import EndpointAgent, EngineAgent, ExpertAgent
from webagent_jax.rollout.collector import Collector, Job, WorkerPool
from webagent_jax.rollout.episode import EpisodeConfig, run_episode
from webagent_jax.rollout.groups import CompletedGroup, GroupScheduler

__all__ = [
    "Collector",
    "CompletedGroup",
    "EndpointAgent",
    "EngineAgent",
    "EpisodeConfig",
    "ExpertAgent",
    "GroupScheduler",
    "Job",
    "WorkerPool",
    "run_episode",
]
