"""Milliseconds of BrowserGym observations: JSON on standard input, JSON on standard output."""

from __future__ import annotations

import json
import sys
import time

import gymnasium
import peer  # noqa: F401  registers the task


def main():
    """Measure the observations of each page and print the times."""
    request = json.load(sys.stdin)
    times_by_page = {}
    for name, url in request["urls"].items():
        env = gymnasium.make(
            "browsergym/counter",
            task_kwargs={"url": url},
            slow_mo=0,
            disable_env_checker=True,
            pw_chromium_kwargs={"executable_path": request["executable"]},
        )
        env.reset(seed=0)
        times = []
        for _ in range(request["repeats"]):
            start = time.perf_counter()
            env.unwrapped._get_obs()
            times.append(1000 * (time.perf_counter() - start))
        env.close()
        times_by_page[name] = times
    print(json.dumps(times_by_page))


if __name__ == "__main__":
    main()
