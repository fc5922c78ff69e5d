"""Tests of the arena suite on live Chromium."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.arena.conftest import SiteClient
from tools.check_relabeling import ExpertOf, run
from webagent_jax.arena import selection
from webagent_jax.arena.client import ArenaServerHandle
from webagent_jax.arena.registry import SITES, TEMPLATES
from webagent_jax.arena.selection import GeneratedTask
from webagent_jax.arena.shop.cart import MAX_QUANTITY
from webagent_jax.arena.task import Data
from webagent_jax.browser import BrowserPool
from webagent_jax.config import ArenaConfig, BrowserConfig, ExpertThoughts, ObservationFormat
from webagent_jax.expert_steps import page_text, with_mistakes, with_thoughts
from webagent_jax.suites.arena import ArenaSuite
from webagent_jax.types import Action, ActionKind, Decision, InfraError, Observation, Task

pytestmark = pytest.mark.browser

TEMPLATE_NAMES = ("shop/buy", "shop/spent-in-month", "shop/reviewers-who-say", "shop/rated-sorted")


def open_pool(observation: ObservationFormat = "compact") -> BrowserPool:
    # Long timeouts: test machines are often busy.
    config = BrowserConfig(
        observation_format=observation, call_timeout=60.0, navigation_timeout=60.0
    )
    return BrowserPool(config)


@pytest.fixture(scope="module")
def pool() -> Iterator[BrowserPool]:
    with open_pool() as pool:
        yield pool


@contextmanager
def open_suite(pool: BrowserPool, **options: Any) -> Iterator[ArenaSuite]:
    suite = ArenaSuite(pool, config=ArenaConfig(**options))
    try:
        yield suite
    finally:
        suite.close()


@pytest.fixture(scope="module", params=["compact", "webarena_lite"])
def suite(request: pytest.FixtureRequest) -> Iterator[ArenaSuite]:
    with open_pool(request.param) as pool, open_suite(pool) as suite:
        yield suite


def first_task(suite: ArenaSuite, template: str) -> Task:
    tasks = [*suite.tasks("test"), *suite.tasks("train")]
    return next(task for task in tasks if task.id.startswith(f"arena/{template}/"))


def run_expert(
    suite: ArenaSuite, task: Task, *, thoughts: ExpertThoughts = "short", mistake_rate: float = 0.0
) -> tuple[float, list[Decision]]:
    """Return the reward and the decisions of the expert's episode."""
    environment = suite.make_env(task)
    try:
        reset_result = environment.reset()
        page = reset_result.observation
        expert = suite.make_expert(task, reset_result)
        if mistake_rate:
            expert = with_mistakes(expert, page, mistake_rate, np.random.default_rng(0))
        expert = with_thoughts(expert, page, task.intent, thoughts)
        decisions = [next(expert)]
        while decisions[-1].action.kind is not ActionKind.EXIT:
            page = environment.step(decisions[-1].action).observation
            assert mistake_rate or page.error in (None, "the page does not scroll further down")
            decisions.append(expert.send(page))
        return environment.compute_reward(decisions[-1].action.value), decisions
    finally:
        environment.close()


def test_browser_goes_back_to_a_form_with_errors(
    pool: BrowserPool, server: ArenaServerHandle, world: str
) -> None:
    with closing(pool.session(origins=[server.origin(world)], viewport=(1280, 720))) as session:
        session.goto(f"{server.addresses(world)['shopping']}/contact")
        for kind, name, value in (
            (ActionKind.TYPE, "Message", "Hi there"),
            (ActionKind.CLICK, "Send Message", None),
            (ActionKind.CLICK, "Help", None),
            (ActionKind.GO_BACK, "", None),
        ):
            elements = session.observe().elements.items()
            number = next((key for key, element in elements if element.name == name), None)
            assert session.act(Action(kind, number, value)) is None
        text = session.observe().text
        assert "Hi there" in text and "At least 10 characters." in text


@pytest.mark.parametrize("template", TEMPLATE_NAMES)
def test_expert_solves_task(suite: ArenaSuite, template: str) -> None:
    reward, decisions = run_expert(suite, first_task(suite, template))
    assert reward == 1.0 and len(decisions) > 3


@pytest.mark.parametrize("name", ["map/list-in-town/2", "map/list-in-town/3"])
def test_expert_names_places_of_one_town_only(suite: ArenaSuite, name: str) -> None:
    reward, _ = run_expert(suite, suite._by_name[name].task)
    assert reward == 1.0


@pytest.mark.parametrize("template", TEMPLATE_NAMES)
def test_immediate_exit_gets_no_reward(suite: ArenaSuite, template: str) -> None:
    task = first_task(suite, template)
    environment = suite.make_env(task)
    try:
        environment.reset()
        assert environment.compute_reward("") == 0.0 and environment.compute_reward(None) == 0.0
    finally:
        environment.close()


@pytest.mark.parametrize("suite", ["compact"], indirect=True)
def test_hedged_answer_gets_no_reward(suite: ArenaSuite) -> None:
    environment = suite.make_env(first_task(suite, "shop/orders-in-month"))
    environment.reset()
    (count,) = environment._task.eval["reference_answers"]["must_include"]
    assert environment.compute_reward(f"{count} orders") == 1.0
    assert environment.compute_reward(f"{count} or {int(count) + 1} orders") == 0.0
    environment.close()


@pytest.mark.parametrize("suite", ["compact"], indirect=True)
@pytest.mark.parametrize("template", ["shop/add-to-cart", "shop/buy"])
@pytest.mark.parametrize(("quantity", "wrong_quantity"), [("1", "15"), ("2", "20")])
def test_wrong_quantity_gets_no_reward(
    suite: ArenaSuite, data: Data, template: str, quantity: str, wrong_quantity: str
) -> None:
    entry = next(entry for entry in TEMPLATES if entry.name == template)
    generated = next(
        item
        for item in selection.generate_tasks([entry], data, seed=0)
        if item.instance.slots["quantity"] == quantity
    )
    slots = {**generated.instance.slots, "quantity": wrong_quantity}
    mistaken = replace(generated, instance=replace(generated.instance, slots=slots))
    rewards = [run(suite, generated.task, ExpertOf(item)).reward for item in (generated, mistaken)]
    assert rewards == [1.0, 0.0]


@pytest.mark.parametrize("suite", ["compact"], indirect=True)
@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("shop/review", "nickname"),
        ("admin/new-customer", "phone"),
        ("admin/new-product", "category"),
        ("admin/new-product", "brand"),
    ],
)
def test_wrong_field_gets_no_reward(
    suite: ArenaSuite, data: Data, template: str, name: str
) -> None:
    entry = next(entry for entry in TEMPLATES if entry.name == template)
    generated = next(selection.generate_tasks([entry], data, seed=0))
    slots = dict(generated.instance.slots)
    others = {"nickname": "Mallory", "phone": "555-100-2000", "brand": "Nobody"}
    if name == "category":
        (others["category"],) = (
            data["shop"]
            .execute(
                "SELECT category.name FROM category JOIN department ON department.id ="
                " department_id WHERE department.name = ? AND category.name != ? LIMIT 1",
                [slots["department"], slots["category"]],
            )
            .fetchone()
        )
    slots[name] = others[name]
    mistaken = replace(generated, instance=replace(generated.instance, slots=slots))
    rewards = [run(suite, generated.task, ExpertOf(item)).reward for item in (generated, mistaken)]
    assert rewards == [1.0, 0.0]


@pytest.mark.parametrize("suite", ["compact"], indirect=True)
@pytest.mark.parametrize(
    "name",
    # The post of downvote-negative/1 has negative comments only.
    [*(f"code/close-labelled/{number}" for number in (1, 2, 3)), "forum/downvote-negative/2"],
)
def test_action_on_all_items_gets_no_reward(suite: ArenaSuite, data: Data, name: str) -> None:
    generated = suite._by_name[name]
    assert run(suite, generated.task, ExpertOf(generated)).reward == 1.0
    slots, site = generated.instance.slots, name.partition("/")[0]
    with closing(suite.make_env(generated.task)) as environment:
        environment.reset()
        client = SiteClient(suite._server, environment._world, site)
        if site == "code":
            sql = (
                "SELECT path || '/' || project.slug, number FROM issue JOIN project"
                " ON project.id = project_id JOIN namespace ON namespace.id = namespace_id"
                " WHERE project.name = ? AND state = 'open'"
            )
            for path, number in data[site].execute(sql, [slots["project"]]):
                client.post(f"/{path}/issues/{number}/state")
        else:
            sql = "SELECT comment.id FROM comment JOIN post ON post.id = post_id WHERE title = ?"
            for (number,) in data[site].execute(sql, [slots["title"]]):
                client.post(f"/vote/comment/{number}", direction="-1", back="/")
        assert environment.compute_reward("") == 0.0


def generated_task(
    data: Data, template: str, matches: Callable[[GeneratedTask], bool] = lambda item: True
) -> GeneratedTask:
    entry = next(entry for entry in TEMPLATES if entry.name == template)
    return next(filter(matches, selection.generate_tasks([entry], data, seed=0)))


def reward_of_requests(
    suite: ArenaSuite, task: Task, send_requests: Callable[[SiteClient], object]
) -> float:
    """Return the reward after requests to the first site of a task."""
    names = {site.task_name: site.name for site in SITES}
    with closing(suite.make_env(task)) as environment:
        environment.reset()
        send_requests(SiteClient(suite._server, environment._world, names[task.sites[0]]))
        return environment.compute_reward("")


@pytest.mark.parametrize("suite", ["compact"], indirect=True)
@pytest.mark.parametrize("template", ["forum/unsubscribe", "code/delete-project"])
def test_sign_out_gets_no_reward(suite: ArenaSuite, data: Data, template: str) -> None:
    def is_private(item: GeneratedTask) -> bool:
        sql = "SELECT 1 FROM project WHERE name = ? AND visibility = 'private'"
        name = item.instance.slots.get("project")
        return template != "code/delete-project" or bool(
            data["code"].execute(sql, [name]).fetchone()
        )

    generated = generated_task(data, template, is_private)
    assert run(suite, generated.task, ExpertOf(generated)).reward == 1.0
    assert not reward_of_requests(suite, generated.task, lambda site: site.post("/sign-out"))


@pytest.mark.parametrize("suite", ["compact"], indirect=True)
@pytest.mark.parametrize(
    "template",
    ["forum/upvote-newest", "forum/downvote-most-commented", "forum/upvote-by-member"],
)
def test_vote_on_all_posts_gets_no_reward(suite: ArenaSuite, data: Data, template: str) -> None:
    generated = generated_task(data, template)
    slots = generated.instance.slots
    assert run(suite, generated.task, ExpertOf(generated)).reward == 1.0
    direction = "-1" if template == "forum/downvote-most-commented" else "1"
    sql = (
        "SELECT post.id FROM post JOIN community ON community.id = community_id JOIN member"
        " ON member.id = author_id"
        " WHERE username = :name OR community.title = :community AND :name = ''"
    )

    def vote(forum: SiteClient) -> None:
        for (number,) in data["forum"].execute(sql, {"name": "", **slots}):
            forum.post(f"/vote/post/{number}", direction=direction, back="/")

    assert not reward_of_requests(suite, generated.task, vote)


@pytest.mark.parametrize("suite", ["compact"], indirect=True)
def test_stars_for_all_projects_get_no_reward(suite: ArenaSuite, data: Data) -> None:
    generated = generated_task(data, "code/star-top")
    assert run(suite, generated.task, ExpertOf(generated)).reward == 1.0
    sql = (
        "SELECT path || '/' || slug FROM project JOIN namespace ON namespace.id = namespace_id"
        " WHERE language = ? AND project.visibility != 'private' AND project.id NOT IN"
        " (SELECT project_id FROM star WHERE user_id = 1)"
    )

    def star(code: SiteClient) -> None:
        for (path,) in data["code"].execute(sql, [generated.instance.slots["language"]]):
            code.post(f"/{path}/star")

    assert not reward_of_requests(suite, generated.task, star)


@pytest.mark.parametrize("suite", ["compact"], indirect=True)
def test_other_product_in_the_cart_gets_no_reward(suite: ArenaSuite, data: Data) -> None:
    generated = generated_task(data, "shop/cheapest-of-brand")
    assert run(suite, generated.task, ExpertOf(generated)).reward == 1.0
    sql = "SELECT slug, option_values FROM product WHERE brand || ' ' || kind = ?"

    def add(shop: SiteClient) -> None:
        for slug, choices in data["shop"].execute(sql, [generated.instance.slots["words"]]):
            page = shop.post("/cart/add", slug=slug, choice=choices.split(", ")[0], quantity=1)
            assert "was added to your cart" in page.text

    assert not reward_of_requests(suite, generated.task, add)


@pytest.mark.parametrize("suite", ["compact"], indirect=True)
def test_overwritten_address_gets_no_reward(suite: ArenaSuite, data: Data) -> None:
    generated = generated_task(data, "shop/new-address")
    assert run(suite, generated.task, ExpertOf(generated)).reward == 1.0
    sql = "SELECT id FROM address WHERE customer_id = 1"
    for (number,) in data["shop"].execute(sql):
        path = f"/account/addresses/{number}"
        assert not reward_of_requests(
            suite,
            generated.task,
            lambda shop, path=path: shop.post(path, **generated.instance.slots),
        )


@pytest.mark.parametrize("suite", ["compact"], indirect=True)
@pytest.mark.parametrize(
    ("field", "wrong_column"),
    [("first name", "last"), ("last name", "first"), ("phone number", "last"), ("email", "last")],
)
def test_value_in_wrong_field_gets_no_reward(
    suite: ArenaSuite, data: Data, field: str, wrong_column: str
) -> None:
    generated = generated_task(
        data, "shop/details", lambda item: item.instance.slots["field"] == field
    )
    assert run(suite, generated.task, ExpertOf(generated)).reward == 1.0
    sql = "SELECT first, last, email, phone FROM customer WHERE id = 1"
    values = dict(data["shop"].execute(sql).fetchone())
    values[wrong_column] = generated.instance.slots["value"]
    assert not reward_of_requests(
        suite, generated.task, lambda shop: shop.post("/account/details", **values)
    )


@pytest.mark.parametrize("suite", ["compact"], indirect=True)
def test_reorder_with_wrong_quantity_gets_no_reward(suite: ArenaSuite) -> None:
    tasks = [*suite.tasks("test"), *suite.tasks("train")]
    num_checked = 0
    for task in (task for task in tasks if task.id.startswith("arena/shop/reorder/")):
        with closing(suite.make_env(task)) as environment:
            environment.reset()
            server, world = suite._server, environment._world
            shop = SiteClient(server, world)
            (number,) = (word.strip(".,:") for word in task.intent.split() if word[0].isdigit())
            shop.post(f"/account/orders/{number}/reorder")
            assert environment.compute_reward("") == 1.0
            sql = (
                "SELECT cart_item.id, quantity, stock FROM cart_item"
                " JOIN product ON product.id = product_id"
            )
            rows = server.rows(world, "shop", sql)
            right = {f"quantity-{item}": quantity for item, quantity, _ in rows}
            # Ten times a quantity contains its digits. The shop must have as many pieces.
            wrong = {
                f"quantity-{item}": 10 * quantity
                for item, quantity, stock in rows
                if 10 * quantity <= min(stock, MAX_QUANTITY)
            }
            if wrong:
                shop.post("/cart/update", **right | wrong)
                assert environment.compute_reward("") == 0.0
                num_checked += 1
    assert num_checked


@pytest.mark.slow
@pytest.mark.parametrize("template", [template.name for template in TEMPLATES])
def test_expert_solves_every_template(suite: ArenaSuite, template: str) -> None:
    reward, _ = run_expert(suite, first_task(suite, template))
    assert reward == 1.0


def test_long_thoughts_contain_intent_history_and_reason(suite: ArenaSuite) -> None:
    task = first_task(suite, "shop/sku")
    reward, decisions = run_expert(suite, task, thoughts="long")
    assert reward == 1.0
    assert all(task.intent in decision.thought for decision in decisions)
    assert "Done so far: search" in decisions[1].thought
    assert "It is among the details" in decisions[-1].thought


def test_restate_thoughts_prepend_task_to_short_thoughts(suite: ArenaSuite) -> None:
    task = first_task(suite, "shop/sku")
    _, short_decisions = run_expert(suite, task)
    reward, decisions = run_expert(suite, task, thoughts="restate")
    assert reward == 1.0
    assert [decision.action for decision in decisions] == [
        expected.action for expected in short_decisions
    ]
    for decision, expected in zip(decisions, short_decisions, strict=True):
        assert decision.thought == f"Task: {task.intent} Next: {expected.thought}"


def test_expert_corrects_every_mistake(suite: ArenaSuite) -> None:
    for template in ("shop/sku", "shop/buy", "forum/comment"):
        task = first_task(suite, template)
        _, expected = run_expert(suite, task)
        reward, decisions = run_expert(suite, task, mistake_rate=1.0)
        assert reward == 1.0
        mistakes = [decision for decision in decisions if decision.is_mistake]
        assert len(mistakes) >= len(expected) - 1
        # The words of the task belong to the decisions that correct them.
        assert {decision.intent_phrase for decision in mistakes} == {""}
        # Each decision still occurs once, after its mistake and perhaps Go Backward.
        corrected = [d for d in decisions if not d.is_mistake and d.thought != "go back"]
        assert [d.action for d in corrected] == [d.action for d in expected]


def test_mistakes_have_thoughts_of_their_kind(suite: ArenaSuite) -> None:
    task = first_task(suite, "shop/sku")
    _, decisions = run_expert(suite, task, thoughts="restate", mistake_rate=0.5)
    assert {decision.is_mistake for decision in decisions} == {False, True}
    assert all(decision.thought.startswith("Task: ") for decision in decisions)


def test_expert_solves_generated_tasks(pool: BrowserPool) -> None:
    with open_suite(pool, task_seed=5, num_generated_tasks=20) as suite:
        task = suite.tasks("train")[0]
        assert "fresh-5" in task.id and len(suite.tasks("train")) == 20
        assert run_expert(suite, task)[0] == 1.0


def test_environment_close_drops_world(suite: ArenaSuite) -> None:
    environment = suite.make_env(first_task(suite, "shop/sku"))
    environment.reset()
    num_worlds = suite._server._call("count")
    environment.close()
    assert suite._server._call("count") == num_worlds - 1


def test_observation_formats_contain_same_text() -> None:
    texts: list[str] = []
    observations: tuple[ObservationFormat, ...] = ("compact", "webarena_lite")
    for observation in observations:
        with open_pool(observation) as pool, open_suite(pool) as suite:
            environment = suite.make_env(first_task(suite, "shop/order-status"))
            page = environment.reset().observation
            for name in ("Account", "My Orders"):
                page = environment.step(
                    Action(ActionKind.CLICK, element_id(page, name))
                ).observation
            texts.append(page_text(page))
            environment.close()
    compact, lite = (text[text.index("My orders") :] for text in texts)
    assert compact == lite and "$" in compact


def element_id(page: Observation, name: str) -> str:
    return next(i for i, element in page.elements.items() if element.name == name)


def test_wrong_answer_after_server_has_ended_is_a_fault(pool: BrowserPool) -> None:
    with open_suite(pool) as suite:
        environment = suite.make_env(first_task(suite, "shop/spent-in-month"))
        environment.reset()
        assert environment.compute_reward("a wrong answer") == 0.0
        os.kill(suite._server._process.pid, signal.SIGKILL)
        with pytest.raises(InfraError, match="the arena server"):
            environment.compute_reward("a wrong answer")
        environment.close()


def test_suite_starts_server_again_if_it_was_killed(pool: BrowserPool) -> None:
    with closing(ArenaSuite(pool, ["shop"])) as suite:
        task = suite.tasks("test")[0]
        os.kill(suite._server._process.pid, signal.SIGKILL)
        suite._server._process.wait()
        with closing(suite.make_env(task)) as environment:
            assert environment.reset().observation.elements


def test_closed_suite_starts_no_server(pool: BrowserPool) -> None:
    suite = ArenaSuite(pool, ["shop"])
    suite.close()
    with pytest.raises(InfraError, match="closed"):
        suite.make_env(suite.tasks("test")[0])
