"""Print how much quantized projections change the log-probabilities of demonstrations.

python tools/quantization_error.py --policy=smollm2-135m-miniwob --demos=runs/miniwob/bc/demos

The tokens are those of one response of each of `--count` demonstrations, evenly spaced.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, get_args

import jax
import numpy as np

from webagent_jax import demos, policy
from webagent_jax.agent import TEMPLATES, ChatTokenizer, PromptFormat
from webagent_jax.config import GRPOConfig, Quantization
from webagent_jax.policy import prompt_record
from webagent_jax.policy.quantization import quantize
from webagent_jax.types import IntArray, Turn

_ROW_TOKENS = 1_536  # tokens of a prompt with its response
_CAP = GRPOConfig().importance_weight_cap


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--policy", required=True, help="as policy.path")
    parser.add_argument("--demos", required=True, type=Path, help="directory of demonstrations")
    parser.add_argument("--count", type=int, default=60, help="number of responses")
    args = parser.parse_args()
    model, params = policy.load_hf(args.policy)
    turns = list(_turns(args.policy, args.demos, args.count))
    logits = jax.jit(partial(policy.logits, model))
    expected = np.concatenate([_log_softmax(logits, params, turn) for turn in turns])  # [N, V]
    tokens = np.concatenate([turn.completion.token_ids for turn in turns])
    print(
        "| quantization | mean | p99 | max | argmax differs, % | importance weight at the cap, % |"
    )
    print("| --- | --- | --- | --- | --- | --- |")
    for kind in get_args(Quantization)[1:]:
        quantized = jax.jit(partial(quantize, quantization=kind))(params)
        actual = np.concatenate([_log_softmax(logits, quantized, turn) for turn in turns])
        rows = np.arange(len(tokens))
        difference = expected[rows, tokens] - actual[rows, tokens]
        size = np.abs(difference)
        differs = np.mean(expected.argmax(axis=-1) != actual.argmax(axis=-1))
        capped = np.mean(difference > np.log(_CAP))
        print(
            f"| {kind} | {size.mean():.4f} | {np.quantile(size, 0.99):.3f} | {size.max():.3f} "
            f"| {100 * differs:.2f} | {100 * capped:.2f} |"
        )
    print(f"\n{len(tokens)} tokens of {len(turns)} responses")


def _turns(path: str, directory: Path, count: int) -> Iterator[Turn]:
    """Yield one turn of each of `count` demonstrations whose row is long enough."""
    policy_dir = policy.resolve_dir(path)
    tokenizer = ChatTokenizer(policy_dir)
    prompt = PromptFormat(TEMPLATES[prompt_record.read(policy_dir) or "webarena"])
    demonstrations = demos.read(directory)
    for number, index in enumerate(np.linspace(0, len(demonstrations) - 1, count).astype(int)):
        turns = demos.to_episode(demonstrations[int(index)], tokenizer, prompt).turns
        turn = turns[number % len(turns)]
        if len(turn.prompt_ids) + len(turn.completion.token_ids) <= _ROW_TOKENS:
            yield turn


def _log_softmax(logits: Any, params: Any, turn: Turn) -> np.ndarray:
    """Return the log-probabilities [C, V] at the tokens of a response."""
    ids: IntArray = np.concatenate([turn.prompt_ids, turn.completion.token_ids])
    row = np.zeros((1, _ROW_TOKENS), np.int32)
    row[0, : len(ids)] = ids
    first = len(turn.prompt_ids) - 1
    return np.asarray(jax.nn.log_softmax(logits(params, row)[0, first : len(ids) - 1]))


if __name__ == "__main__":
    main()
