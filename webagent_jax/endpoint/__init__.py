"""Client of OpenAI-compatible chat endpoints, for agents and judges."""

from webagent_jax.endpoint.chat import (
    REJECTED_PROMPT,
    ChatEndpoint,
    ChatRequest,
    ChatResponse,
    Usage,
)
from webagent_jax.endpoint.http_client import (
    HttpClient,
    PermanentError,
    TransientError,
    retry_with_backoff,
)
from webagent_jax.endpoint.rejected_options import RejectedOptions

__all__ = [
    "REJECTED_PROMPT",
    "ChatEndpoint",
    "ChatRequest",
    "ChatResponse",
    "HttpClient",
    "PermanentError",
    "RejectedOptions",
    "TransientError",
    "Usage",
    "retry_with_backoff",
]
