"""OpenAI-compatible chat endpoints: one way to ask them, for agents and for judges."""

from webagent_jax.endpoint.chat import ChatEndpoint, ChatReply, ChatRequest, Usage
from webagent_jax.endpoint.http_client import Passing, Refused, Server, persist

__all__ = [
    "ChatEndpoint",
    "ChatReply",
    "ChatRequest",
    "Passing",
    "Refused",
    "Server",
    "Usage",
    "persist",
]
