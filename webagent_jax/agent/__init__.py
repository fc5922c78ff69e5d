"""How a model talks to a browser: text, tokens, actions. Pure functions of text."""

from webagent_jax.agent.prompts import TEMPLATES, TaskReader, Template, messages, reply_text
from webagent_jax.agent.tokenizer import ChatTokenizer

__all__ = ["TEMPLATES", "ChatTokenizer", "TaskReader", "Template", "messages", "reply_text"]
