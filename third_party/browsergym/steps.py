"""Steps per second of BrowserGym, in one and several processes: JSON in, JSON out.

Measured with the waits of its MiniWoB++ tasks, and without waits.
"""

from __future__ import annotations

import json
import multiprocessing
import re
import sys
import time

import gymnasium
import peer  # noqa: F401  registers the task
from browsergym.utils.obs import flatten_axtree_to_str

SETTINGS = {
    "as its MiniWoB++ tasks are": {"slow_mo": 100},
    "no waits": {"slow_mo": 0, "pre_observation_delay": 0},
}
WARMUP = 2
TIMEOUT_SECONDS = 300


def run_environment(request, options, start_barrier, end_barrier):
    """Run the steps of one process between two barriers."""
    env = gymnasium.make(
        "browsergym/counter",
        task_kwargs={"url": request["counter"]},
        disable_env_checker=True,
        pw_chromium_kwargs={"executable_path": request["executable"]},
        **options,
    )
    observation, _ = env.reset(seed=0)
    button = re.search(r"\[(\w+)\] button", flatten_axtree_to_str(observation["axtree_object"]))
    click = f"click('{button[1]}')"
    for number in range(WARMUP + request["steps"]):
        if number == WARMUP:
            start_barrier.wait(TIMEOUT_SECONDS)
        _, reward, *_ = env.step(click)
    assert reward == WARMUP + request["steps"], "a click was lost"
    end_barrier.wait(TIMEOUT_SECONDS)
    env.close()


def steps_per_second(request, options, processes):
    """Return the steps per second of all processes together."""
    context = multiprocessing.get_context("spawn")
    start_barrier, end_barrier = context.Barrier(processes + 1), context.Barrier(processes + 1)
    workers = [
        context.Process(target=run_environment, args=(request, options, start_barrier, end_barrier))
        for _ in range(processes)
    ]
    for worker in workers:
        worker.start()
    start_barrier.wait(TIMEOUT_SECONDS)
    start = time.perf_counter()
    end_barrier.wait(TIMEOUT_SECONDS)
    seconds = time.perf_counter() - start
    for worker in workers:
        worker.join(TIMEOUT_SECONDS)
    return processes * request["steps"] / seconds


def main():
    """Measure each setting and print the rates."""
    request = json.load(sys.stdin)
    rates = {
        name: {str(n): steps_per_second(request, options, n) for n in request["processes"]}
        for name, options in SETTINGS.items()
    }
    print(json.dumps(rates))


if __name__ == "__main__":
    main()
