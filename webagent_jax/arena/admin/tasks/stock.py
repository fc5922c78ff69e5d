"""Changes to prices and stock."""

from __future__ import annotations

import random

from webagent_jax.arena.admin.tasks.helpers import (
    go_to_product,
    product_field_equals,
    sample_product,
    save_product,
)
from webagent_jax.arena.shop.tasks.helpers import SHOP, format_dollars, parse_cents
from webagent_jax.arena.task import Data, Slots, TaskInstance, TemplateRegistry, all_of, page_equals
from webagent_jax.expert_steps import click, extract_text, finish, search, type_text
from webagent_jax.types import Expert, Observation

tasks = TemplateRegistry("admin", "shopping_admin")


def _sample_price(data: Data, rng: random.Random) -> TaskInstance | None:
    product = sample_product(data, rng, "old_price IS NULL AND price > 2000")
    if product is None:
        return None
    price = product["price"] + rng.choice((-500, -300, -200, 100, 200, 400))
    slots = {"product": product["name"], "price": format_dollars(price).replace(",", "")}
    spec = page_equals(
        f"{SHOP}/product/{product['slug']}", ".offer .price", f"${format_dollars(price)}"
    )
    return TaskInstance(slots, spec)


@tasks.add(
    "price",
    _sample_price,
    "Change the price of the {product} to ${price}.",
    "Set the price of the {product} to {price} dollars.",
    "The {product} should cost ${price} from now on",
    "Sell the {product} for ${price}: change its price.",
    "Update the {product}; the new price is ${price}.",
)
def price(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_product(page, slots["product"])
    page = yield from type_text(page, "Price", slots["price"])
    yield from save_product(page)
    yield from finish("The price is saved")


def _sample_reduce(data: Data, rng: random.Random) -> TaskInstance | None:
    product, percent = sample_product(data, rng, "old_price IS NULL"), rng.choice((10, 20, 25, 50))
    if product is None or product["price"] * percent % 100:
        return None
    price = product["price"] * (100 - percent) // 100
    url = f"{SHOP}/product/{product['slug']}"
    spec = all_of(
        page_equals(url, ".offer .price", f"${format_dollars(price)}"),
        page_equals(url, ".offer .was", f"was ${format_dollars(product['price'])}"),
    )
    return TaskInstance({"product": product["name"], "percent": str(percent)}, spec)


@tasks.add(
    "reduce",
    _sample_reduce,
    "Reduce the price of the {product} by {percent}%, and keep the old one as its price before.",
    "Put the {product} on sale: {percent} percent off; enter the old price as the price before.",
    "Take {percent}% off the price of the {product}. Its price before is what it costs now",
    "The {product} gets {percent}% cheaper. Move the current price to the price before.",
    "Make the {product} a deal with {percent} percent off and show today's price as the one "
    "before.",
)
def reduce(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_product(page, slots["product"])
    old_price = extract_text(page, r"\$([\d,.]+), ").replace(",", "")
    price = parse_cents(old_price) * (100 - int(slots["percent"])) // 100
    percent = f"{slots['percent']} percent off {old_price}"
    page = yield from type_text(page, "Price", f"{price / 100:.2f}", reason=percent)
    page = yield from type_text(page, "Price before", old_price, reason="That was the price")
    yield from save_product(page)
    yield from finish("The product is reduced")


def _sample_received(data: Data, rng: random.Random) -> TaskInstance | None:
    product, pieces = sample_product(data, rng), rng.randint(5, 90)
    if product is None:
        return None
    slots = {"product": product["name"], "pieces": str(pieces)}
    return TaskInstance(
        slots, product_field_equals(product["sku"], 4, str(product["stock"] + pieces))
    )


@tasks.add(
    "received",
    _sample_received,
    "We received {pieces} more pieces of the {product}. Add them to its stock.",
    "{pieces} {product} came in. Raise the stock by that number.",
    "Increase the stock of the {product} by {pieces}",
    "A delivery of {pieces} {product} arrived: book it into the stock.",
    "Add {pieces} to the number of {product} in stock.",
)
def received(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_product(page, slots["product"])
    old_stock = extract_text(page, r"(\d+) in stock")
    new_stock = str(int(old_stock) + int(slots["pieces"]))
    page = yield from type_text(page, "Stock", new_stock, reason=f"{old_stock} + {slots['pieces']}")
    yield from save_product(page)
    yield from finish("The stock is saved")


def _sample_stocktaking(data: Data, rng: random.Random) -> TaskInstance | None:
    a, b = sample_product(data, rng), sample_product(data, rng)
    counts = [rng.randint(1, 250), rng.randint(1, 250)]
    if a is None or b is None or a["stock"] == counts[0] or b["stock"] == counts[1]:
        return None
    slots = {"a": a["sku"], "n": str(counts[0]), "b": b["sku"], "m": str(counts[1])}
    spec = all_of(
        product_field_equals(a["sku"], 4, slots["n"]), product_field_equals(b["sku"], 4, slots["m"])
    )
    return TaskInstance(slots, spec)


@tasks.add(
    "stocktaking",
    _sample_stocktaking,
    "We counted the shelves: there are {n} pieces of {a} and {m} of {b}. Correct both stocks.",
    "Set the stock of the product with the SKU {a} to {n} and that of {b} to {m}.",
    "Stocktaking: {a} has {n} pieces, {b} has {m}. Enter it",
    "Correct the stock of two products by their SKU: {a} to {n}, {b} to {m}.",
    "The true stock of {a} is {n}, and of {b} it is {m}. Change both products.",
)
def stocktaking(slots: Slots, page: Observation) -> Expert:
    for sku, count in ((slots["a"], slots["n"]), (slots["b"], slots["m"])):
        page = yield from click(
            page, "Products", "link", intent_phrase="", reason="Products are edited there"
        )
        page = yield from search(page, "Name or SKU", sku)
        links = [element.name for element in page.elements.values() if element.kind == "link"]
        name = links[links.index("Clear") + 1]
        page = yield from click(
            page, name, "link", intent_phrase="", reason="It is the only one found"
        )
        page = yield from type_text(page, "Stock", count)
        page = yield from save_product(page)
    yield from finish("Both are saved")
