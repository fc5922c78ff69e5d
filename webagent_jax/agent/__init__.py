"""Text interface between model and browser: prompts, tokens and actions, as pure functions."""

from webagent_jax.agent.prompts import (
    TEMPLATES,
    TaskQuoter,
    Template,
    build_messages,
    format_response,
)
from webagent_jax.agent.tokenizer import ChatTokenizer

__all__ = [
    "TEMPLATES",
    "ChatTokenizer",
    "TaskQuoter",
    "Template",
    "build_messages",
    "format_response",
]
