"""Questions about reviews, and moderation."""

from __future__ import annotations

import random
import re
from typing import Any

from webagent_jax.arena.admin.tasks.helpers import ADMIN, find_rows, sample_product
from webagent_jax.arena.task import (
    Data,
    EvalSpec,
    Slots,
    TaskInstance,
    TemplateRegistry,
    answer_includes,
    page_equals,
    page_includes,
    sample_row,
)
from webagent_jax.expert_steps import (
    Moves,
    answer,
    click,
    element_names,
    finish,
    select_option,
    type_text,
)
from webagent_jax.types import Expert, Observation

tasks = TemplateRegistry("admin", "shopping_admin")


def find_reviews(page: Observation, query: str, **filters: str) -> Moves:
    """Open the list of reviews that match a query and `filters`, which are Status and Stars."""
    page = yield from click(page, "Reviews", "link", intent_phrase="", reason="Reviews have a list")
    for name, option in filters.items():
        page = yield from select_option(page, name, option)
    page = yield from type_text(page, "Product or nickname", query)
    return (yield from click(page, "Filter", "button", intent_phrase=""))


# --- questions -----------------------------------------------------------------------------------


def _sample_who_gave_stars(data: Data, rng: random.Random) -> TaskInstance | None:
    product = sample_product(data, rng, "review_count > 2")
    if product is None:
        return None
    stars = str(rng.randint(1, 3))
    sql = "SELECT nickname, stars FROM review WHERE product_id = ?"
    # An answer may leave out the stop of "Irene H.".
    reviews = [
        (row["nickname"].rstrip("."), row["stars"])
        for row in data["shop"].execute(sql, [product["id"]])
    ]
    nicknames = [name for name, number in reviews if number == int(stars)]
    slots = {"product": product["name"], "stars": stars}
    if not 1 <= len(set(nicknames)) <= 5:
        return None
    spec = answer_includes(*nicknames, excluding=[name for name, _ in reviews])
    return TaskInstance(slots, spec)


@tasks.add(
    "who-gave-stars",
    _sample_who_gave_stars,
    "Tell me the nicknames of all customers who rated the {product} {stars} out of 5.",
    "Who gave the {product} a rating of {stars}? Give their nicknames.",
    "List the nicknames behind the {stars}-star reviews of the {product}",
    "Which nicknames belong to the {stars}-star reviews of the {product}?",
    "Not all were happy with the {product}: who wrote its {stars}-star reviews? Nicknames only.",
)
def who_gave_stars(slots: Slots, page: Observation) -> Expert:
    page = yield from find_reviews(page, slots["product"], Stars=slots["stars"])
    row = rf"{re.escape(slots['product'])} (\S+ [A-Z]\.) {slots['stars']} "
    page, rows = yield from find_rows(page, row)
    text = ", ".join(dict.fromkeys(match[1] for match in rows))
    yield from answer(text, reason="Each row tells its nickname")


def _sample_count_reviews(data: Data, rng: random.Random) -> TaskInstance | None:
    product = sample_product(data, rng, "review_count > 0")
    if product is None:
        return None
    sql = "SELECT count(*) FROM review WHERE product_id = ? AND status = ?"
    status = rng.choice(("Approved", "Pending"))
    (count,) = data["shop"].execute(sql, [product["id"], status]).fetchone()
    slots = {"status": status.lower(), "product": product["name"]}
    return TaskInstance(slots, answer_includes(str(count))) if count > 1 else None


@tasks.add(
    "count-reviews",
    _sample_count_reviews,
    "How many {status} reviews does the {product} have?",
    "Count the reviews of the {product} that are {status}.",
    "Tell me the number of {status} reviews for the {product}",
    "Of the reviews about the {product}, how many are {status}?",
    "How many reviews of the {product} have the status {status}?",
)
def count_reviews(slots: Slots, page: Observation) -> Expert:
    page = yield from find_reviews(page, slots["product"], Status=slots["status"].capitalize())
    page, rows = yield from find_rows(page, r"of ([\d,]+) reviews?")
    yield from answer(rows[0][1], reason="The list counts them")


# --- moderation ----------------------------------------------------------------------------------


def _sample_unique_review(data: Data, rng: random.Random, where: str) -> Any:
    """Return a random review; None if its author has several reviews of the product.

    The review meets the SQL condition `where`.
    """
    sql = (
        "SELECT review.*, name FROM review JOIN product ON product.id = product_id"
        f" WHERE {where} ORDER BY review.id DESC"
    )
    row = sample_row(rng, data["shop"].execute(sql).fetchall())
    count_sql = "SELECT count(*) FROM review WHERE product_id = ? AND nickname = ?"
    (count,) = data["shop"].execute(count_sql, [row["product_id"], row["nickname"]]).fetchone()
    return row if count == 1 else None


def _status_is(number: int, status: str) -> EvalSpec:
    return page_equals(f"{ADMIN}/reviews/{number}", "h1 .status", status)


def _open_review(page: Observation, slots: Slots) -> Moves:
    """Open the review that the slots describe, the only one in the list."""
    page = yield from find_reviews(page, f"{slots['product']} {slots['nickname']}")
    link = next(name for name in element_names(page, "link") if re.fullmatch(r"\d+", name))
    return (
        yield from click(page, link, "link", intent_phrase="", reason="It is the only one found")
    )


def _sample_approve_review(data: Data, rng: random.Random) -> TaskInstance | None:
    row = _sample_unique_review(data, rng, "review.status = 'Pending'")
    if row is None:
        return None
    slots = {"product": row["name"], "nickname": row["nickname"]}
    return TaskInstance(slots, _status_is(row["id"], "Approved"))


@tasks.add(
    "approve-review",
    _sample_approve_review,
    "Approve the review of the {product} by {nickname}",
    "{nickname} reviewed the {product}. Approve this review.",
    "Let the shop show what {nickname} wrote about the {product}: approve the review.",
    "The pending review by {nickname} on the {product} is fine, so approve it.",
    "Please approve what {nickname} says of the {product}",
)
def approve_review(slots: Slots, page: Observation) -> Expert:
    page = yield from _open_review(page, slots)
    yield from click(page, "Approve", "button", intent_phrase="approve")
    yield from finish("The review is approved")


def _sample_reject_review(data: Data, rng: random.Random) -> TaskInstance | None:
    row = _sample_unique_review(data, rng, "review.status = 'Approved' AND stars < 3")
    if row is None:
        return None
    slots = {"product": row["name"], "nickname": row["nickname"]}
    return TaskInstance(slots, _status_is(row["id"], "Rejected"))


@tasks.add(
    "reject-review",
    _sample_reject_review,
    "Reject the review of the {product} by {nickname}",
    "The review that {nickname} wrote about the {product} breaks our rules. Reject it.",
    "Take the review by {nickname} off the {product}: set it to rejected.",
    "{nickname} reviewed the {product}. Reject this review, but do not delete it",
    "Please reject what {nickname} says of the {product}.",
)
def reject_review(slots: Slots, page: Observation) -> Expert:
    page = yield from _open_review(page, slots)
    yield from click(page, "Reject", "button", intent_phrase="reject")
    yield from finish("The review is rejected")


def _sample_delete_review(data: Data, rng: random.Random) -> TaskInstance | None:
    row = _sample_unique_review(data, rng, "stars < 4")
    if row is None:
        return None
    slots = {"product": row["name"], "nickname": row["nickname"]}
    return TaskInstance(
        slots, page_includes(f"{ADMIN}/reviews/{row['id']}", "h1", "Page not found")
    )


@tasks.add(
    "delete-review",
    _sample_delete_review,
    "Delete the review of the {product} by {nickname}",
    "{nickname} wants the review of the {product} to be gone. Delete it.",
    "Remove what {nickname} wrote about the {product} for good.",
    "Find the review on the {product} by {nickname} and delete it",
    "Please delete the review that {nickname} gave the {product}.",
)
def delete_review(slots: Slots, page: Observation) -> Expert:
    page = yield from _open_review(page, slots)
    page = yield from click(page, "Delete", "link", intent_phrase="delete")
    yield from click(page, "Delete Review", "button", intent_phrase="", reason="It asks once more")
    yield from finish("The review is deleted")
