"""Episodes: a plain loop, and the threads around many of them."""

from webagent_jax.rollout.agents import EndpointAgent, EngineAgent, ExpertAgent
from webagent_jax.rollout.collector import Collector, Crew, Job
from webagent_jax.rollout.episode import Rules, run_episode
from webagent_jax.rollout.groups import Groups, Played

__all__ = [
    "Collector",
    "Crew",
    "EndpointAgent",
    "EngineAgent",
    "ExpertAgent",
    "Groups",
    "Job",
    "Played",
    "Rules",
    "run_episode",
]
