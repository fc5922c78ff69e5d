"""Request options that an endpoint rejects: they are renamed or omitted from then on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from webagent_jax.endpoint.http_client import HttpClient, PermanentError

# Options that some endpoints reject, and their names there; an empty name omits the option.
_ALTERNATIVE_NAMES = {
    "max_tokens": "max_completion_tokens",
    "seed": "",
    "top_p": "",
    "temperature": "",
}


class RejectedOptions:
    """Options that the model of a client has rejected so far; thread-safe."""

    def __init__(self, log: Callable[[str], None] = lambda line: None) -> None:
        """Start without rejected options; `log` receives a message for each one that is found."""
        self._log = log
        self._lock = threading.Lock()
        self._names: frozenset[str] = frozenset()  # keys of _ALTERNATIVE_NAMES

    def post_chat(
        self, client: HttpClient, body: Mapping[str, Any], timeout: float
    ) -> dict[str, Any]:
        """Return the response to a request without the options that its model rejects.

        A request is repeated without an option if the error message of the endpoint names it.

        Args:
            client: client of the endpoint.
            body: JSON body of the request, under the usual names of the options.
            timeout: seconds for each request.

        Raises:
            TransientError: the request may succeed later.
            PermanentError: the endpoint rejects the request for another reason.
        """
        # A snapshot: other threads may add options meanwhile, and repeated additions are harmless.
        rejected = self._names
        while True:
            sent = _rename(body, rejected)
            try:
                response = client.post_chat(sent, timeout)
            except PermanentError as fault:
                options = [o for o in _ALTERNATIVE_NAMES if o in sent and o in fault.message]
                # Only these statuses report an invalid option.
                if fault.status not in (400, 422) or not options:
                    raise
                rejected |= {options[0]}
            else:
                self._add(rejected, str(body["model"]))
                return response

    def _add(self, options: frozenset[str], model: str) -> None:
        with self._lock:
            # Only the first thread that finds an option logs it.
            new_options = options - self._names
            self._names |= new_options
        for option in sorted(new_options):
            name = _ALTERNATIVE_NAMES[option]
            handling = f"it is sent as {name}" if name else "it is omitted"
            self._log(f"{model} rejects the option {option}: {handling}")


def _rename(body: Mapping[str, Any], rejected: frozenset[str]) -> dict[str, Any]:
    renamed = {_ALTERNATIVE_NAMES[key] if key in rejected else key: body[key] for key in body}
    # Options without another name are left out.
    renamed.pop("", None)
    return renamed
