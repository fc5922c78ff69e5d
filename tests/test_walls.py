"""The walls hold at run time too: what is imported lazily or by a library is seen here."""

from __future__ import annotations

import subprocess
import sys

import pytest

BROWSER_ROOMS = ("agent", "browser", "suites", "rollout.episode")
DEVICE_ROOMS = ("policy", "learn", "generate")


@pytest.mark.parametrize(
    ("rooms", "forbidden"),
    [
        (BROWSER_ROOMS, {"jax", "flax", "optax", "orbax"}),
        (DEVICE_ROOMS, {"playwright", "tensorflow_datasets", "transformers"}),
    ],
)
def test_rooms_do_not_bring_in(rooms: tuple[str, ...], forbidden: set[str]) -> None:
    script = "".join(f"import webagent_jax.{room}\n" for room in rooms)
    script += f"import sys\nprint(*sorted({forbidden!r} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []
