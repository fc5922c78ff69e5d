"""Episodes: a plain loop, and the threads around many of them."""

from webagent_jax.rollout.agents import EngineAgent, ExpertAgent
from webagent_jax.rollout.collector import Collector, Job
from webagent_jax.rollout.episode import Rules, run_episode

__all__ = ["Collector", "EngineAgent", "ExpertAgent", "Job", "Rules", "run_episode"]
