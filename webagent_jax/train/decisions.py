"""Decision accuracy: how often the greedy response to a demonstrated page has the expert's action.

The loss per token says little about decisions, because most tokens of a response are format. A
response is correct if its action equals the expert's in kind, element and value. Another action may
solve the task as well, so the accuracy is a lower bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import numpy as np

from webagent_jax import demos, distributed, seeds
from webagent_jax.agent import TEMPLATES, ChatTokenizer, actions
from webagent_jax.config import RunConfig
from webagent_jax.demos import Demonstration
from webagent_jax.inference import Engine
from webagent_jax.seeds import Stream
from webagent_jax.types import Completion, Task, Turn

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Decision:
    """Turn of a demonstration whose action the policy has to decide."""

    split: str
    task: Task
    index: int  # of the turn in its episode
    turn: Turn

    @property
    def key(self) -> str:
        """Metric that the decision counts in: first turn or later turns."""
        return "first_turn" if self.index == 0 else "later_turns"


class DecisionAccuracy:
    """Decision accuracy on a fixed sample of demonstrated turns.

    Args:
        cfg: `bc.eval_decisions` is the largest number of turns of each split, on all processes.
        splits: demonstrations of each split, such as "train" and "held_out".
    """

    def __init__(
        self,
        cfg: RunConfig,
        tokenizer: ChatTokenizer,
        splits: Mapping[str, Iterable[Demonstration]],
    ) -> None:
        self._cfg, self._tokenizer = cfg, tokenizer
        self._sample = [
            decision
            for number, (split, demonstrations) in enumerate(splits.items())
            for decision in self._draw(split, list(demonstrations), number)
        ]

    def measure(self, engine: Engine) -> tuple[dict[str, float], list[Json]]:
        """Return the metrics over all processes, and a record for each turn of this process.

        A metric is the fraction of correct decisions of a split, `decisions/<split>`, or of its
        first or later turns, `decisions/<split>/first_turn`.
        """
        futures = [self._submit(engine, decision) for decision in self._sample]
        records = []
        counts: dict[str, list[int]] = {}
        for decision, future in zip(self._sample, futures, strict=True):
            record = self._record(decision, future.result())
            records.append(record)
            for name in (decision.split, f"{decision.split}/{decision.key}"):
                correct, total = counts.get(name, (0, 0))
                counts[name] = [correct + record["correct"], total + 1]
        gathered = distributed.allgather(counts)
        names = sorted({name for process in gathered for name in process})
        sums = {name: np.sum([c[name] for c in gathered if name in c], axis=0) for name in names}
        return (
            {f"decisions/{name}": float(correct / n) for name, (correct, n) in sums.items()},
            records,
        )

    def _draw(
        self, split: str, demonstrations: list[Demonstration], number: int
    ) -> Iterator[_Decision]:
        """Draw turns that fit the engine, half of them first turns where there are as many."""
        turns = [(d, t) for d, demo in enumerate(demonstrations) for t in range(len(demo.turns))]
        draw = seeds.generator(self._cfg.seed, Stream.DECISIONS, number)
        shuffled = [turns[i] for i in draw.permutation(len(turns))]
        count = self._cfg.bc.eval_decisions
        first = [turn for turn in shuffled if turn[1] == 0]
        later = [turn for turn in shuffled if turn[1] > 0]
        num_first = max(min(len(first), count // 2), count - len(later))
        chosen = first[:num_first] + later[: count - num_first]
        template, thinking = TEMPLATES[self._cfg.prompt.template], self._cfg.prompt.thinking
        limit = self._cfg.engine.max_tokens - self._cfg.rollout.max_new_tokens
        for which, index in chosen[distributed.process_index() :: distributed.process_count()]:
            demo = demonstrations[which]
            turn = demos.to_episode(demo, self._tokenizer, template, thinking).turns[index]
            if len(turn.prompt_ids) <= limit:
                yield _Decision(split, demo.task, index, turn)

    def _submit(self, engine: Engine, decision: _Decision) -> Future[Completion]:
        return engine.submit(
            decision.turn.prompt_ids,
            max_new_tokens=self._cfg.rollout.max_new_tokens,
            temperature=0.0,
            stop_ids=self._tokenizer.stop_ids,
        )

    def _record(self, decision: _Decision, completion: Completion) -> Json:
        """Return a JSON record of a decision and the response to it."""
        response = self._tokenizer.decode(completion.token_ids)
        return {
            "split": decision.split,
            "task": decision.task.id,
            "turn": decision.index,
            "expert": decision.turn.reply,
            "response": response,
            "correct": actions.parse(response) == decision.turn.action,
        }
