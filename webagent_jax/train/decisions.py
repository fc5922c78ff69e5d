"""Decision accuracy: fraction of demonstrated turns with the expert's action as greedy response.

The loss per token is a weak measure of decisions, because most tokens of a response are format. A
response is correct if its action equals the expert's in kind, element and value. Another action may
solve the task as well, so the accuracy is a lower bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import numpy as np

from webagent_jax import demos, distributed, seeds
from webagent_jax.agent import ChatTokenizer, actions
from webagent_jax.config import RunConfig
from webagent_jax.demos import Demonstration
from webagent_jax.inference import Engine
from webagent_jax.rollout.runtime import prompt_format
from webagent_jax.seeds import RandomStream
from webagent_jax.types import Completion, Task, Turn

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Decision:
    """Demonstrated turn whose action the policy predicts."""

    split: str
    task: Task
    index: int  # index of the turn in its episode
    turn: Turn

    @property
    def key(self) -> str:
        """Metric suffix of the decision: `first_turn` or `later_turns`."""
        return "first_turn" if self.index == 0 else "later_turns"


class DecisionAccuracy:
    """Decision accuracy on a fixed sample of demonstrated turns.

    Args:
        cfg: `bc.eval_decisions` is the maximum number of turns per split, over all processes.
        tokenizer: encodes prompts and decodes responses.
        splits: demonstrations of each split, read on access, such as "train" and "held_out".
    """

    def __init__(
        self,
        cfg: RunConfig,
        tokenizer: ChatTokenizer,
        splits: Mapping[str, Sequence[Demonstration] | demos.Demonstrations],
    ) -> None:
        self._cfg, self._tokenizer = cfg, tokenizer
        self._decisions = [
            decision
            for number, (split, demonstrations) in enumerate(splits.items())
            # Sampling reads the whole dataset.
            if cfg.bc.eval_decisions
            for decision in self._sample_turns(split, demonstrations, number)
        ]

    def measure(self, engine: Engine) -> tuple[dict[str, float], list[Json]]:
        """Return the metrics over all processes, and a record per turn of this process.

        A metric is the fraction of correct decisions of a split, `decisions/<split>`, or of its
        first or later turns, `decisions/<split>/first_turn`.
        """
        # Submit all requests before the first wait, so that the engine batches them.
        futures = [self._submit(engine, decision) for decision in self._decisions]
        records = []
        counts: dict[str, list[int]] = {}
        for decision, future in zip(self._decisions, futures, strict=True):
            record = self._make_record(decision, future.result())
            records.append(record)
            for name in (decision.split, f"{decision.split}/{decision.key}"):
                correct, total = counts.get(name, (0, 0))
                counts[name] = [correct + record["correct"], total + 1]
        # Add counts, not fractions: processes sample different numbers of turns, or none of a kind.
        gathered = distributed.allgather(counts)
        names = sorted({name for process in gathered for name in process})
        sums = {name: np.sum([c[name] for c in gathered if name in c], axis=0) for name in names}
        return (
            {f"decisions/{name}": float(correct / n) for name, (correct, n) in sums.items()},
            records,
        )

    def _sample_turns(
        self,
        split: str,
        demonstrations: Sequence[Demonstration] | demos.Demonstrations,
        number: int,
    ) -> Iterator[_Decision]:
        """Sample turns that fit the engine, half of them first turns if enough exist."""
        # Pairs of demonstration index and turn index.
        turns = [(d, t) for d, demo in enumerate(demonstrations) for t in demo.trained_turns()]
        rng = seeds.make_generator(self._cfg.seed, RandomStream.DECISIONS, number)
        shuffled = [turns[i] for i in rng.permutation(len(turns))]
        count = self._cfg.bc.eval_decisions
        first = [turn for turn in shuffled if turn[1] == 0]
        later = [turn for turn in shuffled if turn[1] > 0]
        # Half first turns; more of them if there are too few later turns.
        num_first = max(min(len(first), count // 2), count - len(later))
        sampled = first[:num_first] + later[: count - num_first]
        prompt = prompt_format(self._cfg)
        # The engine needs space for a response of full length after the prompt.
        limit = self._cfg.engine.max_model_len - self._cfg.rollout.max_new_tokens
        # Every process draws the same sample and takes every n-th turn of it.
        for demo_index, turn_index in sampled[
            distributed.process_index() :: distributed.process_count()
        ]:
            demo = demonstrations[demo_index]
            # A prompt contains all earlier responses, so the whole demonstration is converted.
            turn = demos.to_episode(demo, self._tokenizer, prompt).turns[turn_index]
            if len(turn.prompt_ids) <= limit:
                yield _Decision(split, demo.task, turn_index, turn)

    def _submit(self, engine: Engine, decision: _Decision) -> Future[Completion]:
        return engine.submit(
            decision.turn.prompt_ids,
            max_new_tokens=self._cfg.rollout.max_new_tokens,
            temperature=0.0,
            stop_ids=self._tokenizer.stop_ids,
        )

    def _make_record(self, decision: _Decision, completion: Completion) -> Json:
        """Return the JSON record of a decision and its response."""
        response = self._tokenizer.decode(completion.token_ids)
        return {
            "split": decision.split,
            "task": decision.task.id,
            "turn": decision.index,
            "expert": decision.turn.response_text,
            "response": response,
            "correct": actions.parse(response) == decision.turn.action,
        }
