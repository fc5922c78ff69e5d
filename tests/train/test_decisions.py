"""Tests of decision accuracy, with greedy responses of a real engine."""

from __future__ import annotations

import dataclasses

import pytest

from configs import quickstart
from webagent_jax import demos, policy
from webagent_jax.agent import TEMPLATES, ChatTokenizer, PromptFormat, actions
from webagent_jax.config import ConfigError
from webagent_jax.demos import Demonstration, DemoTurn
from webagent_jax.policy import resolve_dir
from webagent_jax.rollout.runtime import make_engine
from webagent_jax.tracking.progress import NullProgress
from webagent_jax.train.bc import _split
from webagent_jax.train.decisions import DecisionAccuracy
from webagent_jax.types import Action, ActionKind, Decision, Observation, PolicySnapshot, Task

CFG = quickstart.get_config()
NONE_HELD_OUT = dataclasses.replace(CFG, bc=dataclasses.replace(CFG.bc, held_out_demos=0))
WRONG = Action(ActionKind.GOTO, value="http://nowhere.example/")
PAGE = "Page 0\nlink Home [1]\ntextbox Name [2]\nbutton Submit [3]"


def make_task(number: int) -> Task:
    return Task(f"miniwob/press/{number}", "miniwob", ("press",), "", "http://x/", seed=number)


def make_demonstration(number: int, decisions: list[Decision]) -> Demonstration:
    turns = tuple(DemoTurn(Observation(PAGE, "http://x/"), decision) for decision in decisions)
    return Demonstration(make_task(number), f"Press Submit {number}", turns)


@pytest.fixture(scope="module")
def tokenizer():
    return ChatTokenizer(resolve_dir(CFG.policy.path))


@pytest.fixture(scope="module")
def engine(tokenizer):
    model, params = policy.load_hf(resolve_dir(CFG.policy.path))
    with make_engine(CFG, tokenizer, model, PolicySnapshot(0, params)) as engine:
        yield engine


@pytest.fixture(scope="module")
def policy_demonstrations(engine, tokenizer):
    """Return demonstrations of one turn whose actions equal those of the policy."""
    demonstrations = []
    for number in range(4):
        demo = make_demonstration(number, [Decision("", WRONG)])
        turn = demos.to_episode(demo, tokenizer, PromptFormat(TEMPLATES["compact"])).turns[0]
        completion = engine.submit(
            turn.prompt_ids,
            max_new_tokens=CFG.rollout.max_new_tokens,
            temperature=0.0,
            stop_ids=tokenizer.stop_ids,
        ).result()
        response = tokenizer.decode(completion.token_ids)
        action = actions.parse(response)
        if isinstance(action, Action):
            demonstrations.append(
                make_demonstration(number, [Decision(actions.extract_thought(response), action)])
            )
    assert len(demonstrations) >= 2, "webagent-tiny should act on most of these pages"
    return demonstrations


def make_accuracy(tokenizer, max_decisions: int = 64, **splits) -> DecisionAccuracy:
    bc = dataclasses.replace(CFG.bc, eval_decisions=max_decisions)
    return DecisionAccuracy(dataclasses.replace(CFG, bc=bc), tokenizer, splits)


def test_accuracy_is_fraction_of_decisions_equal_to_expert(
    engine, tokenizer, policy_demonstrations
):
    wrong_demonstrations = [make_demonstration(9, [Decision("", WRONG)])]
    metrics, records = make_accuracy(
        tokenizer,
        train=policy_demonstrations,
        held_out=policy_demonstrations + wrong_demonstrations,
    ).measure(engine)
    count = len(policy_demonstrations)
    assert metrics["decisions/train"] == 1.0
    assert metrics["decisions/held_out"] == pytest.approx(count / (count + 1))
    assert len(records) == 2 * count + 1
    assert [r["task"] for r in records if not r["correct"]] == ["miniwob/press/9"]
    assert all(isinstance(record["correct"], bool) for record in records)


def test_accuracy_reports_first_and_later_turns_separately(
    engine, tokenizer, policy_demonstrations
):
    first_turn = policy_demonstrations[0].turns[0]
    later_turn = DemoTurn(first_turn.observation, Decision("", WRONG))
    demo = dataclasses.replace(policy_demonstrations[0], turns=(first_turn, later_turn))
    metrics, _ = make_accuracy(tokenizer, train=[demo]).measure(engine)
    assert metrics == {
        "decisions/train": 0.5,
        "decisions/train/first_turn": 1.0,
        "decisions/train/later_turns": 0.0,
    }


def test_sample_is_half_first_turns_and_at_most_eval_decisions(tokenizer):
    demonstrations = [make_demonstration(number, [Decision("", WRONG)] * 5) for number in range(10)]
    sample = make_accuracy(tokenizer, max_decisions=12, train=demonstrations)._decisions
    assert [decision.key for decision in sample] == ["first_turn"] * 6 + ["later_turns"] * 6
    one_turn_demonstrations = [
        make_demonstration(number, [Decision("", WRONG)]) for number in range(10)
    ]
    assert (
        len(make_accuracy(tokenizer, max_decisions=8, train=one_turn_demonstrations)._decisions)
        == 8
    )
    assert make_accuracy(tokenizer, max_decisions=0, train=demonstrations)._decisions == []


def test_sample_excludes_mistakes(tokenizer):
    decisions = [Decision("", WRONG, is_mistake=True), *[Decision("", WRONG)] * 2]
    sample = make_accuracy(tokenizer, train=[make_demonstration(0, decisions)])._decisions
    assert [decision.index for decision in sample] == [1, 2]


def test_split_excludes_held_out_demonstrations_from_training():
    demonstrations = [make_demonstration(number, [Decision("", WRONG)]) for number in range(10)]
    held_out_cfg = dataclasses.replace(CFG, bc=dataclasses.replace(CFG.bc, held_out_demos=3))
    train, held_out = _split(held_out_cfg, demonstrations, (), NullProgress())
    assert (len(train), len(held_out)) == (7, 3)
    ids = [demo.task.id for demo in [*train, *held_out]]
    assert sorted(ids) == sorted(demo.task.id for demo in demonstrations)
    assert _split(held_out_cfg, demonstrations, (), NullProgress())[1] == held_out
    other_seed_cfg = dataclasses.replace(held_out_cfg, seed=1)
    assert _split(other_seed_cfg, demonstrations, (), NullProgress())[1] != held_out


def test_split_holds_out_all_seeds_of_validation_tasks():
    ids = ["arena/a", "arena/a/1", "arena/b", "arena/b/1"]
    demonstrations = [
        dataclasses.replace(demo, task=dataclasses.replace(demo.task, id=task_id))
        for task_id in ids
        for demo in [make_demonstration(0, [Decision("", WRONG)])]
    ]
    # All demonstrations have the instruction of the validation task.
    validation_task = dataclasses.replace(demonstrations[0].task, intent=demonstrations[0].intent)
    train, held_out = _split(NONE_HELD_OUT, demonstrations, [validation_task], NullProgress())
    assert [demo.task.id for demo in held_out] == ["arena/a", "arena/a/1"]
    assert [demo.task.id for demo in train] == ["arena/b", "arena/b/1"]


class LogProgress(NullProgress):
    """Progress that keeps the messages."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def log(self, line: str) -> None:
        self.messages.append(line)


def test_split_holds_out_imported_demonstrations_of_validation_tasks():
    demonstrations = [
        Demonstration(Task(f"webrl/demos/{i}", "webrl", (), intent, ""), intent, ())
        for i, intent in enumerate(["Star  the top\nrepository.", "Open the forum"])
    ]

    def split(*intents):
        tasks = [Task(f"w/{i}", "webarena_lite", (), text, "") for i, text in enumerate(intents)]
        progress = LogProgress()
        train, held_out = _split(NONE_HELD_OUT, demonstrations, tasks, progress)
        assert len(train) + len(held_out) == 2
        return [demo.task.id for demo in held_out], progress.messages

    assert split("star the top repository", "Buy it") == (["webrl/demos/0"], [])
    # The intents of these tasks are known only after a reset.
    for intents in (("",), ("Buy it", "")):
        held_out, messages = split(*intents)
        assert held_out == [] and "none of 2 demonstrations is known to be of a" in messages[0]


def test_split_rejects_empty_training_set():
    demonstrations = [make_demonstration(number, [Decision("", WRONG)]) for number in range(3)]
    held_out_cfg = dataclasses.replace(CFG, bc=dataclasses.replace(CFG.bc, held_out_demos=3))
    with pytest.raises(
        ConfigError, match=r"none of 3 demonstrations remains .* bc\.held_out_demos=3"
    ):
        _split(held_out_cfg, demonstrations, (), NullProgress())


def test_accuracy_skips_prompts_too_long_for_engine(tokenizer):
    long_page = Observation("button go [1] " * 400, "http://x/")
    demo = Demonstration(make_task(0), "Go", (DemoTurn(long_page, Decision("", WRONG)),))
    assert make_accuracy(tokenizer, train=[demo])._decisions == []
