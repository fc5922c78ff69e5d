"""Decision accuracy: greedy responses of a real engine against the actions of demonstrations."""

from __future__ import annotations

import dataclasses

import pytest

from configs import quickstart
from webagent_jax import config, demos, policy
from webagent_jax.agent import TEMPLATES, ChatTokenizer, actions
from webagent_jax.config import ConfigError
from webagent_jax.demos import Demonstration, DemoTurn
from webagent_jax.policy import resolve_dir
from webagent_jax.rollout.runtime import make_engine
from webagent_jax.train.bc import _split
from webagent_jax.train.decisions import DecisionAccuracy
from webagent_jax.types import Action, ActionKind, Decision, Observation, PolicySnapshot, Task

CFG = config.from_config_dict(quickstart.get_config())
WRONG = Action(ActionKind.GOTO, value="http://nowhere.example/")
PAGE = "Page 0\nlink Home [1]\ntextbox Name [2]\nbutton Submit [3]"


def task(number: int) -> Task:
    return Task(f"miniwob/press/{number}", "miniwob", ("press",), "", "http://x/", seed=number)


def demonstration(number: int, decisions: list[Decision]) -> Demonstration:
    turns = tuple(DemoTurn(Observation(PAGE, "http://x/"), each) for each in decisions)
    return Demonstration(task(number), f"Press Submit {number}", turns)


@pytest.fixture(scope="module")
def tokenizer():
    return ChatTokenizer(resolve_dir(CFG.policy.path))


@pytest.fixture(scope="module")
def engine(tokenizer):
    model, params = policy.load_hf(resolve_dir(CFG.policy.path))
    with make_engine(CFG, tokenizer, model, PolicySnapshot(0, params)) as opened:
        yield opened


@pytest.fixture(scope="module")
def repeated(engine, tokenizer):
    """Demonstrations of one turn that the policy decides as shown."""
    found = []
    for number in range(4):
        demo = demonstration(number, [Decision("", WRONG)])
        turn = demos.to_episode(demo, tokenizer, TEMPLATES["compact"], True).turns[0]
        completion = engine.submit(
            turn.prompt_ids,
            max_new_tokens=CFG.rollout.max_new_tokens,
            temperature=0.0,
            stop_ids=tokenizer.stop_ids,
        ).result()
        response = tokenizer.decode(completion.token_ids)
        action = actions.parse(response)
        if isinstance(action, Action):
            found.append(
                demonstration(number, [Decision(actions.extract_thought(response), action)])
            )
    assert len(found) >= 2, "webagent-tiny should act on most of these pages"
    return found


def accuracy(tokenizer, decisions: int = 64, **splits) -> DecisionAccuracy:
    bc = dataclasses.replace(CFG.bc, eval_decisions=decisions)
    return DecisionAccuracy(dataclasses.replace(CFG, bc=bc), tokenizer, splits)


def test_accuracy_is_the_fraction_of_decisions_that_equal_the_experts(engine, tokenizer, repeated):
    wrong = [demonstration(9, [Decision("", WRONG)])]
    metrics, records = accuracy(tokenizer, train=repeated, held_out=repeated + wrong).measure(
        engine
    )
    count = len(repeated)
    assert metrics["decisions/train"] == 1.0
    assert metrics["decisions/held_out"] == pytest.approx(count / (count + 1))
    assert len(records) == 2 * count + 1
    assert [r["task"] for r in records if not r["correct"]] == ["miniwob/press/9"]
    assert all(isinstance(record["correct"], bool) for record in records)


def test_first_and_later_turns_are_reported_apart(engine, tokenizer, repeated):
    turn = repeated[0].turns[0]
    later = DemoTurn(turn.observation, Decision("", WRONG))
    two_turns = dataclasses.replace(repeated[0], turns=(turn, later))
    metrics, _ = accuracy(tokenizer, train=[two_turns]).measure(engine)
    assert metrics == {
        "decisions/train": 0.5,
        "decisions/train/first_turn": 1.0,
        "decisions/train/later_turns": 0.0,
    }


def test_sample_is_half_first_turns_and_at_most_eval_decisions(tokenizer):
    shown = [demonstration(n, [Decision("", WRONG)] * 5) for n in range(10)]
    sample = accuracy(tokenizer, decisions=12, train=shown)._decisions
    assert [decision.key for decision in sample] == ["first_turn"] * 6 + ["later_turns"] * 6
    only_first = [demonstration(n, [Decision("", WRONG)]) for n in range(10)]
    assert len(accuracy(tokenizer, decisions=8, train=only_first)._decisions) == 8
    assert accuracy(tokenizer, decisions=0, train=shown)._decisions == []


def test_held_out_demonstrations_are_not_trained_on():
    shown = [demonstration(n, [Decision("", WRONG)]) for n in range(10)]
    held = dataclasses.replace(CFG, bc=dataclasses.replace(CFG.bc, held_out_demos=3))
    trained, held_out = _split(held, shown, None)
    assert (len(trained), len(held_out)) == (7, 3)
    ids = [demo.task.id for demo in [*trained, *held_out]]
    assert sorted(ids) == sorted(demo.task.id for demo in shown)
    assert _split(held, shown, None)[1] == held_out
    other_seed = dataclasses.replace(held, seed=1)
    assert _split(other_seed, shown, None)[1] != held_out


def test_holding_all_out_is_refused():
    shown = [demonstration(n, [Decision("", WRONG)]) for n in range(3)]
    held = dataclasses.replace(CFG, bc=dataclasses.replace(CFG.bc, held_out_demos=3))
    with pytest.raises(ConfigError, match=r"bc\.held_out_demos=3 leaves none of 3"):
        _split(held, shown, None)


def test_prompts_too_long_for_the_engine_are_left_out(tokenizer):
    long = Observation("button go [1] " * 400, "http://x/")
    demo = Demonstration(task(0), "Go", (DemoTurn(long, Decision("", WRONG)),))
    assert accuracy(tokenizer, train=[demo])._decisions == []
