"""Inference engine: samples completions of prompts for any number of threads."""

from webagent_jax.inference.engine import Engine, EngineError, EngineStats

__all__ = ["Engine", "EngineError", "EngineStats"]
