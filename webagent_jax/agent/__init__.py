"""Text interface between model and browser: prompts, tokens and actions, as pure functions."""

from webagent_jax.agent.prompts import (
    TEMPLATES,
    PromptFormat,
    TaskQuoter,
    Template,
    build_messages,
    format_response,
)
from webagent_jax.agent.tokenizer import ChatTokenizer

__all__ = [
    "TEMPLATES",
    "ChatTokenizer",
    "PromptFormat",
    "TaskQuoter",
    "Template",
    "build_messages",
    "format_response",
]
