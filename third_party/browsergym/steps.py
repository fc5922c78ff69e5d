"""BrowserGym's steps per second, in one process and in several: JSON in, JSON out.

Once with the waits that its MiniWoB++ tasks come with, once with none.
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

WAYS = {
    "as its MiniWoB++ tasks are": {"slow_mo": 100},
    "no waits": {"slow_mo": 0, "pre_observation_delay": 0},
}
WARMUP = 2
TIMEOUT = 300  # seconds


def play(asked, options, started, done):
    env = gymnasium.make(
        "browsergym/counter",
        task_kwargs={"url": asked["counter"]},
        disable_env_checker=True,
        pw_chromium_kwargs={"executable_path": asked["executable"]},
        **options,
    )
    seen, _ = env.reset(seed=0)
    button = re.search(r"\[(\w+)\] button", flatten_axtree_to_str(seen["axtree_object"]))
    click = f"click('{button[1]}')"
    for number in range(WARMUP + asked["steps"]):
        if number == WARMUP:
            started.wait(TIMEOUT)
        _, reward, *_ = env.step(click)
    assert reward == WARMUP + asked["steps"], "a click was lost"
    done.wait(TIMEOUT)
    env.close()


def steps_per_second(asked, options, processes):
    context = multiprocessing.get_context("spawn")
    started, done = context.Barrier(processes + 1), context.Barrier(processes + 1)
    players = [
        context.Process(target=play, args=(asked, options, started, done)) for _ in range(processes)
    ]
    for player in players:
        player.start()
    started.wait(TIMEOUT)
    begun = time.perf_counter()
    done.wait(TIMEOUT)
    seconds = time.perf_counter() - begun
    for player in players:
        player.join(TIMEOUT)
    return processes * asked["steps"] / seconds


def main():
    asked = json.load(sys.stdin)
    found = {
        way: {str(n): steps_per_second(asked, options, n) for n in asked["processes"]}
        for way, options in WAYS.items()
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
