"""The sampling engine: prompts in, completions out, from any number of threads."""

from webagent_jax.inference.engine import Engine, EngineError, EngineStats
from webagent_jax.inference.requests import RequestExpired

__all__ = ["Engine", "EngineError", "EngineStats", "RequestExpired"]
