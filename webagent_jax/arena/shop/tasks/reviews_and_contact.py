"""Reviews, and messages to the shop."""

from __future__ import annotations

import random

from webagent_jax.arena.shop.tasks.helpers import SHOP, go_to_product, sample_order, sample_product
from webagent_jax.arena.task import (
    Data,
    Slots,
    TaskInstance,
    TemplateRegistry,
    all_of,
    field_includes,
    page_includes,
)
from webagent_jax.expert_steps import click, finish, select_option, type_text
from webagent_jax.types import Expert, Observation

tasks = TemplateRegistry("shop", "shopping")

_REVIEWS = (
    ("4", "Solid", "Does what it should and looks good."),
    ("5", "Love it", "Best thing I bought this year."),
    ("3", "So so", "Fine, but I expected more for the price."),
    ("2", "Not great", "It broke after three weeks."),
    ("1", "Never again", "Arrived damaged and nobody answered."),
    ("5", "Great gift", "My parents were delighted."),
    ("4", "Good quality", "Well made, only the parcel was late."),
)


def _sample_review(data: Data, rng: random.Random) -> TaskInstance | None:
    product = sample_product(data, rng)
    stars, title, body = rng.choice(_REVIEWS)
    if product is None:
        return None
    nickname = rng.choice(("Nora", "Nora W.", "nora_w", "Whitfield"))
    slots = {
        "product": product["name"],
        "stars": stars,
        "title": title,
        "body": body,
        "nickname": nickname,
    }
    text = f"{stars} {title} {body}"
    # Only the back office shows the nickname of a review that is not approved yet.
    row = "\t".join((title, product["name"], nickname, stars, "Pending"))
    spec = all_of(
        page_includes(f"{SHOP}/account/reviews", ".review:first-of-type", product["name"], text),
        page_includes("__SHOPPING_ADMIN__/reviews?status=Pending", "table", row),
    )
    return TaskInstance(slots, spec)


@tasks.add(
    "review",
    _sample_review,
    'Review the {product} as "{nickname}": rating {stars}, summary "{title}", text "{body}"',
    'Rate the {product}: {stars} of 5 stars, nickname "{nickname}", summary "{title}", and the '
    'review "{body}"',
    'Write a review of the {product}. Stars: {stars}. Nickname: "{nickname}". Summary: "{title}". '
    'Review: "{body}"',
    'Give the {product} a rating of {stars}. My nickname is "{nickname}", the summary is '
    '"{title}", the review is "{body}"',
    'Post a {stars}-star review for the {product} by "{nickname}" that is titled "{title}" and '
    'reads "{body}"',
)
def review(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_product(page, slots["product"])
    page = yield from click(page, "Write a Review", "link", intent_phrase="")
    option = "1 star" if slots["stars"] == "1" else f"{slots['stars']} stars"
    page = yield from select_option(page, "Rating", option, intent_phrase=slots["stars"])
    page = yield from type_text(page, "Nickname", slots["nickname"])
    page = yield from type_text(page, "Summary", slots["title"])
    page = yield from type_text(page, "Review", slots["body"])
    yield from click(page, "Submit Review", "button", intent_phrase="")
    yield from finish("The review is submitted")


def _sample_draft_message(data: Data, rng: random.Random) -> TaskInstance | None:
    order = sample_order(data, rng, "status = 'Complete'")
    topic, reason = rng.choice(
        (
            ("Return or refund", "It broke after three days of use"),
            ("Return or refund", "The colour is not as shown"),
            ("Return or refund", "It does not fit"),
            ("Order", "One piece was missing in the parcel"),
            ("Order", "The parcel was open when it came"),
            ("Product question", "How do I clean it"),
        )
    )
    slots = {"number": str(order["id"]), "topic": topic, "reason": reason}
    spec = all_of(
        field_includes("#topic", topic),
        field_includes("#order_number", str(order["id"])),
        field_includes("#body", reason),
    )
    return TaskInstance(slots, spec)


@tasks.add(
    "draft-message",
    _sample_draft_message,
    'Fill in the contact form about order {number}: topic "{topic}", message "{reason}". Do not '
    "send it.",
    'Draft a message to the shop on order {number} with the topic "{topic}" that says "{reason}". '
    "Do not submit yet",
    'Prepare the contact form for my order {number}. The topic is "{topic}", the message '
    '"{reason}". I will send it myself.',
    'Use the contact form: order number {number}, topic "{topic}", text "{reason}". Leave it '
    "unsent.",
    'Write, but do not send, a message about order {number}: "{topic}" as the topic and '
    '"{reason}" as the text.',
)
def draft_message(slots: Slots, page: Observation) -> Expert:
    page = yield from click(
        page, "Help", "link", intent_phrase="", reason="The contact form is in the help"
    )
    page = yield from click(page, "Contact Us", "link", intent_phrase="")
    page = yield from select_option(page, "Topic", slots["topic"])
    page = yield from type_text(page, "Order number (if any)", slots["number"])
    yield from type_text(page, "Message", slots["reason"])
    yield from finish("The form is filled in, and I must not send it")
