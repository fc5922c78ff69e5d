"""Tests of the pretraining of webagent-tiny: exercises, initial params and a short run."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from webagent_jax import policy
from webagent_jax.agent import ChatTokenizer, actions, prompts
from webagent_jax.policy import prompt_record, transformer
from webagent_jax.pretrain import pages, tasks, train
from webagent_jax.pretrain.train import PretrainConfig


def test_exercises_have_valid_responses_about_their_pages() -> None:
    rng = np.random.default_rng(0)
    exercises = [tasks.make_exercise(rng, steps=1 + n % 5) for n in range(200)]
    assert [len(exercise.steps) for exercise in exercises] == [1 + n % 5 for n in range(200)]
    steps = [(exercise.intent, *step) for exercise in exercises for step in exercise.steps]
    for intent, page, step in steps:
        response = prompts.format_response(step.thought, step.action, thinking=True)
        assert actions.parse(response) == step.action
        ids = [item.id for item in pages.elements(page)]
        assert len(set(ids)) == len(ids)
        assert step.action.element_id is None or step.action.element_id in ids
        assert step.intent_phrase.lower() in intent.lower()
    assert {step.action.kind.name for _, _, step in steps} == {"CLICK", "TYPE", "SELECT", "EXIT"}


def test_initial_heads_attend_to_earlier_tokens_and_their_successors() -> None:
    model, length = train.MODEL, 32
    params = train.init_with_induction_heads(model, jax.random.key(0))
    # A random sequence twice: each token of the second half has an earlier occurrence.
    sequence = np.random.default_rng(0).permutation(model.vocab_size)[:length]
    tokens = np.tile(sequence, 2)[None]
    weights = []  # [H, T, T] of each layer

    def attend(q: jax.Array, k: jax.Array, v: jax.Array) -> tuple[jax.Array, None]:
        k, v = (jnp.repeat(x, model.num_heads // model.num_kv_heads, axis=2) for x in (k, v))
        scores = jnp.einsum("bthe,bshe->bhts", q, k) / model.head_dim**0.5
        is_visible = np.tril(np.ones((1, 1, 2 * length, 2 * length), bool))
        probabilities = jax.nn.softmax(jnp.where(is_visible, scores, -jnp.inf), axis=-1)
        weights.append(probabilities[0])
        return jnp.einsum("bhts,bshe->bthe", probabilities, v), None

    hidden = params["embed"][tokens]
    angles = transformer.rope_angles(model, jnp.arange(2 * length)[None])
    for layer in range(2):
        layer_params = jax.tree.map(lambda x, layer=layer: x[layer], params["layers"])
        hidden, _ = transformer.apply_block(model, layer_params, hidden, angles, attend)
    previous_token, induction = weights
    queries = np.arange(length + 4, 2 * length - 1)
    for head in range(model.num_heads):
        assert np.all(previous_token[head, queries, queries - (head + 1)] > 0.99)
    # Uniform attention would have a mean of 0.02. Head 2 compares two tokens, head 0 only one.
    for head, min_weight in ((0, 0.1), (2, 0.5)):
        assert np.mean(induction[head, queries, queries - length + 1]) > min_weight


def test_pretraining_writes_policy_that_loads(tmp_path: Path) -> None:
    cfg = PretrainConfig(updates=2, rows=2, row_tokens=256, tokenizer_exercises=300)
    log_lines: list[str] = []
    train.pretrain(cfg, tmp_path, log_lines.append)
    assert log_lines == ["training the tokenizer"]
    model, params = policy.load_hf(tmp_path)
    assert policy.count_params(model) == policy.count_params(train.MODEL)
    assert prompt_record.read(tmp_path) == "compact"
    initial = train.init_with_induction_heads(train.MODEL, jax.random.key(cfg.seed))
    assert not np.array_equal(params["embed"], initial["embed"])
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(params))
    tokenizer = ChatTokenizer(tmp_path)
    response = (
        '<think> click Save [12] </think> <answer> do(action="Click", element="12") </answer>'
    )
    assert tokenizer.decode(tokenizer.encode_response(response)) == response
