"""Simulate updates of M-GRPO on 1 to 64 hosts, synchronous and asynchronous.

python tools/simulate_scale.py                  # tables of docs/sizing.md
python tools/simulate_scale.py --store=WORKDIR  # store the episodes of an M-GRPO run first

The simulation replays stored episodes: the order of their turns, the browser times and the relative
numbers of turns and response tokens are measured, the means of these numbers are those of
`WORKLOAD`. It schedules groups as `train/batches.py` does and starts an update when all hosts have
their batches. Times of engines and updates are those of `webagent_jax/sizing.py`. Engines do not
compute during an update; browsers continue.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
import math
import random
import statistics
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tools.recipes import HARDWARE, WORKLOADS, recipe  # noqa: E402
from tools.results.formatting import table_of  # noqa: E402
from webagent_jax import sizing, types  # noqa: E402
from webagent_jax.sizing import Hardware, Workload  # noqa: E402
from webagent_jax.tracking import episode_log  # noqa: E402
from webagent_jax.tracking.metric_writers import read_metrics  # noqa: E402

STORED = ROOT / "docs" / "results" / "scale" / "episodes.json"
UPDATES = 12  # simulated updates; the first is not counted
HOSTS = (1, 8, 64)
MODELS = ("Qwen2.5-3B", "Llama-3.1-8B")
SIMULATED_HARDWARE = ("8 H100 80 GB", "v5p-8")
WORKLOAD = WORKLOADS["arena"]
BROWSER_SECONDS = (None, 2.0)  # mean of a turn; None: as measured on local pages
# CPU time of an action and an observation on the apps of docs/infinity.md: 30.4 per second with
# eight episodes on two cores (up to 9 % too high, see there).
CORE_SECONDS = 2 / 30.4


@dataclass(frozen=True)
class Turn:
    """Browser time, then a response."""

    browser_seconds: float  # before the request
    tokens: int  # of the response; 0 at the end of an episode
    model_seconds: float  # measured time of the response


@dataclass(frozen=True)
class StoredGroup:
    """Recorded group of episodes."""

    has_signal: bool  # whether it was trained on
    episodes: tuple[tuple[Turn, ...], ...]


@dataclass(frozen=True)
class Settings:
    """Settings of every host."""

    groups: int  # trained groups per update
    max_extra_groups: int
    max_staleness: int
    concurrency: int  # concurrent episodes
    slots: float  # requests computed together
    model_seconds: Callable[[Turn], float]  # time of a response in a slot


@dataclass
class _Pending:
    group: StoredGroup
    update: int
    num_missing: int


@dataclass
class _Episode:
    group: int
    turns: tuple[Turn, ...]
    index: int = 0  # of the current turn

    @property
    def turn(self) -> Turn:
        return self.turns[self.index]


class Host:
    """Browsers and engine of one host.

    Args:
        settings: settings of the host.
        groups: groups to replay.
    """

    def __init__(self, settings: Settings, groups: Iterator[StoredGroup]) -> None:
        self.now = 0.0
        self._settings, self._groups = settings, groups
        self._counter = itertools.count()  # breaks ties in the heaps
        self._num_scheduled = 0
        self._pending: dict[int, _Pending] = {}
        self._queue: deque[_Episode] = deque()
        self._num_running = 0
        self._browsers: list[tuple[float, int, _Episode]] = []  # by time
        # The clock of the engine stops during an update.
        self._engine_now = 0.0
        self._engine: list[tuple[float, int, _Episode]] = []  # by time of the engine
        self._waiting: deque[_Episode] = deque()

    def collect(self, update: int, num_ahead: int) -> None:
        """Simulate until the batch of the update is complete, as `train/batches.py` does."""
        target = self._settings.groups
        budget, oldest = (
            target + self._settings.max_extra_groups,
            update - self._settings.max_staleness,
        )
        num_trained = num_collected = 0
        while True:
            missing = max(0, min(target - num_trained, budget - num_collected))
            self._schedule(missing + num_ahead - len(self._pending), update)
            if not missing and all(p.update > oldest for p in self._pending.values()):
                return
            group = self._next_group(None if missing else oldest)
            num_collected += 1
            num_trained += group.has_signal

    def advance(self, until: float, *, has_engine: bool = True) -> None:
        """Simulate until a time, with or without the engine."""
        while self._process_event(until, has_engine):
            pass

    def _schedule(self, count: int, update: int) -> None:
        for _ in range(count):
            group, index = next(self._groups), self._num_scheduled
            self._num_scheduled += 1
            self._pending[index] = _Pending(group, update, len(group.episodes))
            self._queue.extend(_Episode(index, turns) for turns in group.episodes)
        self._start_episodes()

    def _next_group(self, max_update: int | None) -> StoredGroup:
        while True:
            for index, pending in self._pending.items():
                is_excluded = max_update is not None and pending.update > max_update
                if not is_excluded and not pending.num_missing:
                    return self._pending.pop(index).group
            assert self._process_event(math.inf, has_engine=True), "no episode is running"

    def _process_event(self, until: float, has_engine: bool) -> bool:
        """Process the next event before a time; without one, move to that time and return False."""
        browser_time = self._browsers[0][0] if self._browsers else math.inf
        engine_time = math.inf
        if self._engine and has_engine:
            engine_time = self.now + self._engine[0][0] - self._engine_now
        time = min(browser_time, engine_time)
        is_event = time <= until and time < math.inf
        time = time if is_event else until
        if has_engine:
            self._engine_now += time - self.now
        self.now = time
        if not is_event:
            return False
        if browser_time <= engine_time:
            self._request(heapq.heappop(self._browsers)[2])
        else:
            self._respond(heapq.heappop(self._engine)[2])
        return True

    def _start_episodes(self) -> None:
        while self._queue and self._num_running < self._settings.concurrency:
            self._num_running += 1
            self._browse(self._queue.popleft())

    def _browse(self, episode: _Episode) -> None:
        time = self.now + episode.turn.browser_seconds
        heapq.heappush(self._browsers, (time, next(self._counter), episode))

    def _request(self, episode: _Episode) -> None:
        if not episode.turn.tokens:
            self._num_running -= 1
            self._pending[episode.group].num_missing -= 1
            self._start_episodes()
        elif len(self._engine) < self._settings.slots:
            time = self._engine_now + self._settings.model_seconds(episode.turn)
            heapq.heappush(self._engine, (time, next(self._counter), episode))
        else:
            self._waiting.append(episode)

    def _respond(self, episode: _Episode) -> None:
        episode.index += 1
        self._browse(episode)
        if self._waiting:
            self._request(self._waiting.popleft())


def simulate(
    settings: Settings, hosts: int, update_seconds: float, groups: Sequence[StoredGroup]
) -> float:
    """Return the seconds from one update to the next.

    Args:
        settings: settings of every host.
        hosts: number of hosts, each with its own random sequence of groups.
        update_seconds: time of the optimizer step.
        groups: groups to sample from.
    """

    def sample(host: int) -> Iterator[StoredGroup]:
        rng = random.Random(f"0/{host}")
        while True:
            yield rng.choice(groups)

    members = [Host(settings, sample(host)) for host in range(hosts)]
    start = 0.0
    for update in range(UPDATES):
        ahead = min(settings.max_staleness, UPDATES - 1 - update) * settings.groups
        for host in members:
            host.collect(update, ahead)
        # The step begins when the last host has its batch.
        step_start = max(host.now for host in members)
        for host in members:
            host.advance(step_start)
            host.advance(step_start + update_seconds, has_engine=False)
        if not update:
            start = members[0].now
    return (members[0].now - start) / (UPDATES - 1)


# --- stored episodes ------------------------------------------------------------------------------


@dataclass(frozen=True)
class StoredUpdate:
    """Rollouts of one update of a run on one host."""

    rollout_seconds: float  # measured
    groups: tuple[StoredGroup, ...]  # in the order of scheduling


def store(workdir: Path) -> None:
    """Write the episodes of a synchronous M-GRPO run to `STORED`."""
    run = json.loads((workdir / "config.json").read_text())
    updates = []
    for metrics in read_metrics(workdir / "metrics.jsonl"):
        path = workdir / "episodes" / f"update-{int(metrics['update']):05}.jsonl"
        groups: dict[int, list[types.Episode]] = {}
        for episode in episode_log.read_episodes(path):
            groups.setdefault(episode.group, []).append(episode)
        stored = [
            {
                "has_signal": len({episode.reward for episode in groups[index]}) > 1,
                "episodes": [_stored_turns(episode) for episode in groups[index]],
            }
            for index in sorted(groups)
        ]
        updates.append({"rollout_seconds": metrics["seconds/rollout"], "groups": stored})
    STORED.parent.mkdir(exist_ok=True)
    record = {
        "commit": run["commit"],
        "concurrency": run["config"]["rollout"]["max_concurrent_episodes"],
        "max_extra_groups": run["config"]["grpo"]["max_extra_groups"],
        "tasks_per_update": run["config"]["grpo"]["tasks_per_update"],
        "updates": updates,
    }
    STORED.write_text(json.dumps(record, separators=(",", ":")) + "\n")


def _stored_turns(episode: types.Episode) -> list[tuple[float, int, float]]:
    """Return (browser seconds, tokens, model seconds) of every turn, and of the end."""
    turns, browser_seconds = [], 0.0
    for turn in episode.turns:
        browser_seconds += turn.seconds.get("start", 0.0)
        turns.append(
            (
                round(browser_seconds, 3),
                len(turn.completion.token_ids),
                round(turn.seconds["model"], 3),
            )
        )
        browser_seconds = turn.seconds.get("browser", 0.0)  # none without an action
    return [*turns, (round(browser_seconds, 3), 0, 0.0)]


def load_record() -> dict[str, Any]:
    """Return the content of `STORED`."""
    record: dict[str, Any] = json.loads(STORED.read_text())
    return record


def load_updates(record: dict[str, Any]) -> list[StoredUpdate]:
    """Return the updates of `STORED`."""
    return [
        StoredUpdate(
            update["rollout_seconds"],
            tuple(
                StoredGroup(
                    group["has_signal"],
                    tuple(tuple(Turn(*turn) for turn in turns) for turns in group["episodes"]),
                )
                for group in update["groups"]
            ),
        )
        for update in record["updates"]
    ]


# --- tables ---------------------------------------------------------------------------------------


def check_table(record: dict[str, Any]) -> str:
    """Return simulated and measured rollout times of the stored run."""
    settings = Settings(
        groups=record["tasks_per_update"],
        max_extra_groups=record["max_extra_groups"],
        max_staleness=0,
        concurrency=record["concurrency"],
        slots=math.inf,
        model_seconds=lambda turn: turn.model_seconds,
    )
    rows = []
    for index, update in enumerate(load_updates(record)):
        host = Host(settings, iter(update.groups))
        host.collect(0, 0)
        ratio = host.now / update.rollout_seconds
        rows.append(
            (str(index + 1), f"{update.rollout_seconds:.0f}", f"{host.now:.0f}", f"{ratio:.2f}")
        )
    return table_of(("update", "measured, s", "simulated, s", "ratio"), rows)


def demand_table() -> str:
    """Return the times of an update, and what it takes to keep all slots of the engines busy."""
    rows = []
    for result, hardware in _recipes(HARDWARE):
        settings = _settings(result, hardware, max_staleness=0)
        response = settings.model_seconds(Turn(0.0, int(WORKLOAD.response_tokens), 0.0))
        grpo = result.cfg.grpo
        num_turns = (
            grpo.tasks_per_update * grpo.group_size * WORKLOAD.episodes_per_trained * WORKLOAD.turns
        )
        seconds = {
            "learner": result.update_seconds,
            "engine": num_turns * response / settings.slots,
            "browsers": num_turns * WORKLOAD.browser_seconds / settings.concurrency,
        }
        turns_per_second = settings.slots / response
        rows.append(
            (
                _model_name(result),
                hardware.name + ("" if result.fits else " (does not fit)"),
                *(f"{value:.1f}" for value in seconds.values()),
                max(seconds, key=lambda name: seconds[name]),
                f"{settings.slots:.0f}",
                f"{settings.slots * (1 + WORKLOAD.browser_seconds / response):.0f}",
                f"{turns_per_second:.0f}",
                f"{turns_per_second * CORE_SECONDS:.1f}",
            )
        )
    header = (
        "model",
        "hardware",
        "learner, s",
        "engine, s",
        "browsers, s",
        "bound by",
        "slots",
        "episodes to fill them",
        "actions per second",
        "CPU cores",
    )
    return table_of(header, rows)


def _recipes(hardware: Sequence[Hardware]) -> Iterator[tuple[sizing.Sizing, Hardware]]:
    """Yield the recommended recipe of every model on every hardware."""
    for model, item in itertools.product(MODELS, hardware):
        yield sizing.recommend(recipe("arena", model), item, WORKLOAD), item


def _model_name(result: sizing.Sizing) -> str:
    rank = result.cfg.lora.rank
    return result.cfg.policy.path + (f", LoRA {rank}" if rank else "")


def scale_table(groups: Sequence[StoredGroup]) -> str:
    """Return the time from update to update by hosts, synchronous and asynchronous."""
    rows = []
    hosts_hardware = [item for item in HARDWARE if item.name in SIMULATED_HARDWARE]
    for result, hardware in _recipes(hosts_hardware):
        for browser_seconds, hosts in itertools.product(BROWSER_SECONDS, HOSTS):
            # Weak scaling: every host has the groups of the recipe, and the params are sharded over
            # the devices of one host.
            played = scale_episodes(groups, WORKLOAD, browser_seconds)
            sync, asynchronous = (
                simulate(
                    _settings(result, hardware, max_staleness),
                    hosts,
                    result.update_seconds,
                    played,
                )
                for max_staleness in (0, 1)
            )
            rows.append(
                (
                    _model_name(result),
                    hardware.name,
                    "measured" if browser_seconds is None else f"{browser_seconds:g} s",
                    str(hosts),
                    f"{result.update_seconds:.1f}",
                    f"{sync:.1f}",
                    f"{asynchronous:.1f}",
                    f"{sync / asynchronous:.2f}",
                )
            )
    header = (
        "model",
        "machine",
        "browser time of a turn",
        "machines",
        "learner, s",
        "synchronous, s",
        "asynchronous, s",
        "ratio",
    )
    return table_of(header, rows)


def _settings(result: sizing.Sizing, hardware: Hardware, max_staleness: int) -> Settings:
    cfg = result.cfg
    engines = sizing.num_engines(cfg, hardware)
    times = result.engine_times
    return Settings(
        groups=cfg.grpo.tasks_per_update,
        max_extra_groups=cfg.grpo.max_extra_groups,
        max_staleness=max_staleness,
        concurrency=cfg.rollout.max_concurrent_episodes * engines,
        slots=cfg.engine.slots * engines,
        # An engine computes the prompts of its slots one after another, so the response in a slot
        # also waits for the prompts of the others.
        model_seconds=lambda turn: (
            cfg.engine.slots * times.prefill + turn.tokens * times.decode_step
        ),
    )


def scale_episodes(
    groups: Sequence[StoredGroup], workload: Workload, browser_seconds: float | None
) -> list[StoredGroup]:
    """Return groups with the means of a workload: turns per episode and tokens per response.

    Args:
        groups: stored groups.
        workload: workload with the means.
        browser_seconds: mean browser time of a turn; None keeps the measured times.
    """
    groups = _repeat_turns(groups, workload.turns)
    turns = [turn for group in groups for episode in group.episodes for turn in episode]
    responses = [turn.tokens for turn in turns if turn.tokens]
    token_scale = workload.response_tokens / statistics.mean(responses)
    browser_scale = 1.0
    if browser_seconds is not None:
        # The end of an episode has a browser time, but is not a turn.
        total = sum(turn.browser_seconds for turn in turns)
        browser_scale = browser_seconds * len(responses) / total

    def scale(turn: Turn) -> Turn:
        return replace(
            turn,
            browser_seconds=turn.browser_seconds * browser_scale,
            tokens=round(turn.tokens * token_scale),
        )

    return [
        replace(group, episodes=tuple(tuple(map(scale, turns)) for turns in group.episodes))
        for group in groups
    ]


def _repeat_turns(groups: Sequence[StoredGroup], mean_turns: float) -> list[StoredGroup]:
    """Return groups whose episodes repeat their turns, in order, up to a mean number of turns."""
    lengths = [len(episode) - 1 for group in groups for episode in group.episodes]
    factor = mean_turns / statistics.mean(lengths)
    rounding_error = 0.0

    def repeat(episode: tuple[Turn, ...]) -> tuple[Turn, ...]:
        nonlocal rounding_error
        *turns, end = episode
        # The next episode receives the error, so that the mean is exact.
        length = factor * len(turns) + rounding_error
        rounding_error = length - round(length)
        return (*itertools.islice(itertools.cycle(turns), round(length)), end)

    return [replace(group, episodes=tuple(map(repeat, group.episodes))) for group in groups]


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", type=Path, help="workdir of an M-GRPO run to store")
    args = parser.parse_args()
    if args.store:
        store(args.store)
    record = load_record()
    print(check_table(record))
    print()
    groups = [group for update in load_updates(record) for group in update.groups]
    print(demand_table())
    print()
    print(scale_table(groups))


if __name__ == "__main__":
    main()
