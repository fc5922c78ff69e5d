"""Reviews to look up, and to moderate."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Any

from webagent_jax.arena.admin.tasks.helpers import ADMIN, a_product, rows_of
from webagent_jax.arena.expert_steps import Moves, answer, choose, click, done, names, type_text
from webagent_jax.arena.task import (
    Data,
    Instance,
    Spec,
    Templates,
    answers,
    page_has,
    page_is,
    pick,
)
from webagent_jax.types import Expert, Observation

tasks = Templates("admin", "shopping_admin")

Slots = Mapping[str, str]


def find_reviews(page: Observation, asked: str, **narrowed: str) -> Moves:
    """`narrowed`: options of the filters Status and Stars."""
    page = yield from click(page, "Reviews", "link", about="", why="Reviews have a list")
    for name, option in narrowed.items():
        page = yield from choose(page, name, option)
    page = yield from type_text(page, "Product or nickname", asked)
    return (yield from click(page, "Filter", "button", about=""))


# --- questions -----------------------------------------------------------------------------------


def _unhappy(data: Data, rng: random.Random) -> Instance | None:
    product = a_product(data, rng, "review_count > 2")
    if product is None:
        return None
    stars = str(rng.randint(1, 3))
    sql = "SELECT nickname FROM review WHERE product_id = ? AND stars = ?"
    found = [name for (name,) in data["shop"].execute(sql, [product["id"], int(stars)])]
    slots = {"product": product["name"], "stars": stars}
    return Instance(slots, answers(*found)) if 1 <= len(set(found)) <= 5 else None


@tasks.add(
    "who-gave-stars",
    _unhappy,
    "Tell me the nicknames of all customers who gave the {product} {stars} star(s).",
    "Who rated the {product} with {stars} star(s)? Give their nicknames.",
    "List the nicknames behind the {stars}-star reviews of the {product}",
    "Which nicknames did those use who gave {stars} star(s) to the {product}?",
    "Somebody was not quite happy with the {product}: who gave it {stars} star(s)? Nicknames only.",
)
def who_gave_stars(slots: Slots, page: Observation) -> Expert:
    page = yield from find_reviews(page, slots["product"], Stars=slots["stars"])
    row = rf"{re.escape(slots['product'])} (\S+ [A-Z]\.) {slots['stars']} "
    page, rows = yield from rows_of(page, row)
    text = ", ".join(dict.fromkeys(each[1] for each in rows))
    yield from answer(text, why="Each row tells its nickname")


def _average(data: Data, rng: random.Random) -> Instance | None:
    product = a_product(data, rng, "review_count > 0")
    if product is None:
        return None
    sql = "SELECT count(*) FROM review WHERE product_id = ? AND status = ?"
    status = rng.choice(("Approved", "Pending"))
    (count,) = data["shop"].execute(sql, [product["id"], status]).fetchone()
    slots = {"status": status.lower(), "product": product["name"]}
    return Instance(slots, answers(str(count))) if count > 1 else None


@tasks.add(
    "count-reviews",
    _average,
    "How many {status} reviews does the {product} have?",
    "Count the reviews of the {product} that are {status}.",
    "Tell me the number of {status} reviews for the {product}",
    "Of the reviews about the {product}, how many are {status}?",
    "How many reviews of the {product} have the status {status}?",
)
def count_reviews(slots: Slots, page: Observation) -> Expert:
    page = yield from find_reviews(page, slots["product"], Status=slots["status"].capitalize())
    page, rows = yield from rows_of(page, r"of ([\d,]+) reviews?")
    yield from answer(rows[0][1], why="The list counts them")


# --- moderation ----------------------------------------------------------------------------------


def _one(data: Data, rng: random.Random, where: str) -> Any:
    """The only such review of a product; None where there are more."""
    sql = (
        "SELECT review.*, name FROM review JOIN product ON product.id = product_id"
        f" WHERE {where} ORDER BY review.id DESC"
    )
    row = pick(rng, data["shop"].execute(sql).fetchall())
    same = "SELECT count(*) FROM review WHERE product_id = ? AND nickname = ?"
    (count,) = data["shop"].execute(same, [row["product_id"], row["nickname"]]).fetchone()
    return row if count == 1 else None


def _status_is(number: int, status: str) -> Spec:
    return page_is(f"{ADMIN}/reviews/{number}", "h1 .status", status)


def _open(page: Observation, slots: Slots) -> Moves:
    """The only review that is found."""
    page = yield from find_reviews(page, f"{slots['product']} {slots['nickname']}")
    link = next(name for name in names(page, "link") if re.fullmatch(r"\d+", name))
    return (yield from click(page, link, "link", about="", why="It is the only one found"))


def _approve(data: Data, rng: random.Random) -> Instance | None:
    row = _one(data, rng, "review.status = 'Pending'")
    if row is None:
        return None
    slots = {"product": row["name"], "nickname": row["nickname"]}
    return Instance(slots, _status_is(row["id"], "Approved"))


@tasks.add(
    "approve-review",
    _approve,
    "Approve the review of the {product} by {nickname}",
    "{nickname} reviewed the {product}. Approve this review.",
    "Let the shop show what {nickname} wrote about the {product}: approve the review.",
    "The pending review by {nickname} on the {product} is fine, so approve it.",
    "Please approve what {nickname} says of the {product}",
)
def approve_review(slots: Slots, page: Observation) -> Expert:
    page = yield from _open(page, slots)
    yield from click(page, "Approve", "button", about="approve")
    yield from done("The review is approved")


def _reject(data: Data, rng: random.Random) -> Instance | None:
    row = _one(data, rng, "review.status = 'Approved' AND stars < 3")
    if row is None:
        return None
    slots = {"product": row["name"], "nickname": row["nickname"]}
    return Instance(slots, _status_is(row["id"], "Rejected"))


@tasks.add(
    "reject-review",
    _reject,
    "Reject the review of the {product} by {nickname}",
    "The review that {nickname} wrote about the {product} breaks our rules. Reject it.",
    "Take the review by {nickname} off the {product}: set it to rejected.",
    "{nickname} reviewed the {product}. Reject this review, but do not delete it",
    "Please reject what {nickname} says of the {product}.",
)
def reject_review(slots: Slots, page: Observation) -> Expert:
    page = yield from _open(page, slots)
    yield from click(page, "Reject", "button", about="reject")
    yield from done("The review is rejected")


def _delete(data: Data, rng: random.Random) -> Instance | None:
    row = _one(data, rng, "stars < 4")
    if row is None:
        return None
    slots = {"product": row["name"], "nickname": row["nickname"]}
    return Instance(slots, page_has(f"{ADMIN}/reviews/{row['id']}", "h1", "Page not found"))


@tasks.add(
    "delete-review",
    _delete,
    "Delete the review of the {product} by {nickname}",
    "{nickname} wants the review of the {product} to be gone. Delete it.",
    "Remove what {nickname} wrote about the {product} for good.",
    "Find the review on the {product} by {nickname} and delete it",
    "Please delete the review that {nickname} gave the {product}.",
)
def delete_review(slots: Slots, page: Observation) -> Expert:
    page = yield from _open(page, slots)
    page = yield from click(page, "Delete", "link", about="delete")
    yield from click(page, "Delete Review", "button", about="", why="It asks once more")
    yield from done("The review is deleted")
