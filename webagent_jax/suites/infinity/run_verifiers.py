"""Program that runs verifiers of WebArena-Infinity on the state of an app; standard library only.

    python -I -S run_verifiers.py SERVER_URL VERIFIER.py... < STATE.json

Prints one JSON line per verifier: {"passed", "message"}, or {"error"} if it raises an exception.
Verifiers read the state with `requests.get(f"{server_url}/api/state")`. Here a module with this
function replaces the package `requests`, so a verifier opens no connection.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import traceback
import types
from typing import Any


class Response:
    """Response with the state of the app."""

    status_code = 200
    ok = True

    def __init__(self, text: str) -> None:
        self.text = text

    def json(self) -> Any:
        """Return the state as a new object, which the verifier may change."""
        return json.loads(self.text)

    def raise_for_status(self) -> None:
        """Do nothing, because the status is 200."""


def install_requests(server_url: str, state: str) -> None:
    """Make `import requests` return a module that responds with `state`."""

    def get(url: str, **_: Any) -> Response:
        if url != f"{server_url}/api/state":
            raise LookupError(f"a verifier may read {server_url}/api/state only, not {url}")
        return Response(state)

    module = types.ModuleType("requests")
    vars(module).update(get=get, Response=Response)
    sys.modules["requests"] = module


def run_verifier(path: str, server_url: str) -> dict[str, Any]:
    """Return the verdict of one verifier, or its error."""
    try:
        spec = importlib.util.spec_from_file_location("verifier", path)
        if spec is None or spec.loader is None:
            return {"error": f"{path} is not a Python file"}
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        passed, message = module.verify(server_url)
        if type(passed) is not bool:
            return {"error": f"the verdict {passed!r} is not a bool"}
        return {"passed": passed, "message": str(message)}
    except Exception:
        return {"error": traceback.format_exc(limit=-2)}


def main(server_url: str, paths: list[str]) -> None:
    """Run the verifiers on the state in standard input."""
    install_requests(server_url, sys.stdin.read())
    verdicts, sys.stdout = sys.stdout, sys.stderr  # a verifier may print
    for path in paths:
        verdicts.write(json.dumps(run_verifier(path, server_url)) + "\n")
        verdicts.flush()


if __name__ == "__main__":
    # Write no bytecode to the checkout of the user.
    sys.dont_write_bytecode = True
    main(sys.argv[1], sys.argv[2:])
