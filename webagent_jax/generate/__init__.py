"""The sampling engine: prompts in, completions out, from any number of threads."""

from webagent_jax.generate.engine import Engine, EngineError, EngineStats
from webagent_jax.generate.requests import RequestExpired

__all__ = ["Engine", "EngineError", "EngineStats", "RequestExpired"]
