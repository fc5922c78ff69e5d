"""Milliseconds of BrowserGym's observations: JSON on standard input, JSON on standard output."""

from __future__ import annotations

import json
import sys
import time

import gymnasium
import peer  # noqa: F401  registers the task


def main():
    asked = json.load(sys.stdin)
    found = {}
    for name, url in asked["urls"].items():
        env = gymnasium.make(
            "browsergym/counter",
            task_kwargs={"url": url},
            slow_mo=0,
            disable_env_checker=True,
            pw_chromium_kwargs={"executable_path": asked["executable"]},
        )
        env.reset(seed=0)
        times = []
        for _ in range(asked["repeats"]):
            begun = time.perf_counter()
            env.unwrapped._get_obs()
            times.append(1000 * (time.perf_counter() - begun))
        env.close()
        found[name] = times
    print(json.dumps(found))


if __name__ == "__main__":
    main()
