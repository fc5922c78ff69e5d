"""Questions about products, and changes to products."""

from __future__ import annotations

import random
from urllib.parse import quote_plus

from webagent_jax.arena.admin.products import SORTS
from webagent_jax.arena.admin.tasks.helpers import (
    ADMIN,
    field_value,
    go_to_product,
    product_field_equals,
    sample_product,
    save_product,
)
from webagent_jax.arena.shop.product_catalog import categories
from webagent_jax.arena.shop.tasks.helpers import SHOP, format_dollars
from webagent_jax.arena.site import to_slug
from webagent_jax.arena.task import (
    Data,
    Slots,
    TaskInstance,
    TemplateRegistry,
    all_of,
    answer_includes,
    page_equals,
    sample_row,
    url_equals,
)
from webagent_jax.expert_steps import (
    Moves,
    answer,
    click,
    extract_text,
    finish,
    select_option,
    type_text,
)
from webagent_jax.types import Expert, Observation

tasks = TemplateRegistry("admin", "shopping_admin")


# --- questions -----------------------------------------------------------------------------------


def _sample_stock_and_sku(data: Data, rng: random.Random) -> TaskInstance | None:
    product = sample_product(data, rng, "stock > 0")
    if product is None:
        return None
    slots = {"product": product["name"]}
    return TaskInstance(slots, answer_includes(product["sku"], str(product["stock"])))


@tasks.add(
    "stock-and-sku",
    _sample_stock_and_sku,
    "How many {product} are in stock, and what is the SKU?",
    "Give me the SKU and the stock of the {product}.",
    "Tell me the SKU of the {product} and how many pieces we have.",
    "Look up the {product}: SKU and number in stock",
    "I need the stock and the SKU of our {product}.",
)
def stock_and_sku(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_product(page, slots["product"])
    sku, stock = extract_text(page, r"(\S+), \$"), extract_text(page, r"(\d+) in stock")
    yield from answer(f"SKU {sku}, {stock} in stock", reason="Its page tells both")


def _sample_extreme_product(data: Data, rng: random.Random) -> TaskInstance | None:
    departments = data["shop"].execute("SELECT * FROM department").fetchall()
    department, kind = sample_row(rng, departments), rng.choice(list(_ENDS))
    sql = (
        "SELECT product.name FROM product JOIN category ON category.id = category_id"
        f" WHERE department_id = ? ORDER BY {SORTS[_ENDS[kind]][1].replace(', id', '')}, product.id"
    )
    column = {"price": "price", "sold": "sold", "stock": "stock"}[_ENDS[kind].split("-")[0]]
    rows = data["shop"].execute(
        sql.replace("product.name", f"product.name, {column}"), [department["id"]]
    )
    first, second = rows.fetchmany(2)
    if first[1] == second[1]:
        return None
    return TaskInstance({"department": department["name"], "kind": kind}, answer_includes(first[0]))


_ENDS = {
    "the highest price": "price-down",
    "the lowest price": "price-up",
    "the highest stock": "stock-down",
    "the most pieces sold so far": "sold",
}


@tasks.add(
    "extreme-product",
    _sample_extreme_product,
    "Which product of {department} has {kind}?",
    "In the department {department}, which product has {kind}?",
    "Name the product with {kind} in {department}.",
    "Find out which of our {department} products has {kind}",
    "Of everything in {department}, tell me the product that has {kind}.",
)
def extreme_product(slots: Slots, page: Observation) -> Expert:
    page = yield from _open_list(page, slots["department"], _ENDS[slots["kind"]], slots["kind"])
    links = [element.name for element in page.elements.values() if element.kind == "link"]
    first = links[links.index("Clear") + 1]
    yield from answer(first, reason="It comes first in this order")


def _open_list(page: Observation, department: str, sort: str, intent_phrase: str) -> Moves:
    page = yield from click(
        page, "Products", "link", intent_phrase="", reason="The list can be narrowed"
    )
    page = yield from select_option(page, "Department", department)
    page = yield from click(page, "Filter", "button", intent_phrase="")
    return (yield from select_option(page, "Sort by", SORTS[sort][0], intent_phrase=intent_phrase))


def _sample_list_products(data: Data, rng: random.Random) -> TaskInstance | None:
    department = sample_row(rng, data["shop"].execute("SELECT * FROM department").fetchall())
    sort = rng.choice([key for key in SORTS if key])
    slots = {"department": department["name"], "order": SORTS[sort][0].lower()}
    url = f"{ADMIN}/products?department={department['slug']}&sort={sort}"
    return TaskInstance(slots, url_equals(url))


@tasks.add(
    "list-products",
    _sample_list_products,
    "List the products of {department}, sorted by: {order}.",
    "Show me all products of the department {department}, sorted by: {order}.",
    "Filter the products by the department {department} and sort them ({order})",
    "I want to look through our {department} products, sorted by: {order}.",
    "Open the product list for {department} with the sorting {order}.",
)
def list_products(slots: Slots, page: Observation) -> Expert:
    sort = next(key for key, (text, _) in SORTS.items() if text.lower() == slots["order"])
    yield from _open_list(page, slots["department"], sort, slots["order"])
    yield from finish("The products are listed")


# --- changes -------------------------------------------------------------------------------------


def _sample_disable_product(data: Data, rng: random.Random) -> TaskInstance | None:
    product = sample_product(data, rng)
    if product is None:
        return None
    return TaskInstance(
        {"product": product["name"]}, product_field_equals(product["sku"], 5, "Disabled")
    )


@tasks.add(
    "disable-product",
    _sample_disable_product,
    "Disable the {product}.",
    "The {product} is no longer sold. Disable it in the catalogue.",
    "Take the {product} out of the shop by disabling it",
    "Set the status of the {product} to disabled.",
    "Please disable the product {product}, but do not change anything else.",
)
def disable_product(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_product(page, slots["product"])
    page = yield from select_option(page, "Status", "Disabled", intent_phrase="disable")
    yield from save_product(page)
    yield from finish("The product is disabled")


def _sample_rename_product(data: Data, rng: random.Random) -> TaskInstance | None:
    product = sample_product(data, rng)
    if product is None:
        return None
    name = f"{product['name']} {rng.choice(('II', '2023', 'Limited Edition', 'Special'))}"
    return TaskInstance(
        {"product": product["name"], "name": name}, product_field_equals(product["sku"], 1, name)
    )


@tasks.add(
    "rename-product",
    _sample_rename_product,
    'Rename the {product} to "{name}"',
    'Change the name of the {product} to "{name}".',
    'The {product} is called "{name}" from now on. Change its name.',
    'Give the product {product} the new name "{name}"',
    'Edit the {product}: its name should be "{name}".',
)
def rename_product(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_product(page, slots["product"])
    page = yield from type_text(page, "Name", slots["name"])
    yield from save_product(page)
    yield from finish("The name is saved")


_LINES = ("Harvest", "Aurora", "Juniper", "Solstice", "Meadow", "Harbour", "Cobalt", "Saffron")


def _sample_new_product(data: Data, rng: random.Random) -> TaskInstance | None:
    category = rng.choice(list(categories()))
    kind, brand = rng.choice(category.kinds), rng.choice(category.words["brands"])
    name = f"{brand} {rng.choice(_LINES)} {kind.name}"
    price = rng.randint(kind.min_dollars, kind.max_dollars) * 100 + rng.choice((0, 50, 90))
    slots = {
        "department": category.department,
        "category": category.name,
        "name": name,
        "brand": brand,
        "sku": f"NEW{rng.randint(20_000, 99_999)}",
        "price": format_dollars(price).replace(",", ""),
        "stock": str(rng.randint(5, 200)),
    }
    sql = "SELECT 1 FROM product WHERE name = ?"
    if data["shop"].execute(sql, [name]).fetchone():
        return None
    texts = (name, slots["sku"], f"${format_dollars(price)}", slots["stock"])
    # The list does not show categories, but its search finds them.
    query = quote_plus(f"{slots['sku']} {category.name}")
    spec = all_of(
        *(product_field_equals(slots["sku"], i, text) for i, text in enumerate(texts, 1)),
        page_equals(f"{ADMIN}/products?q={query}", "td:nth-child(2)", slots["sku"]),
        page_equals(f"{SHOP}/product/{to_slug(name)}", ".details tr:first-of-type td", brand),
    )
    return TaskInstance(slots, spec)


@tasks.add(
    "new-product",
    _sample_new_product,
    'Add a product to {department}, category {category}: "{name}" by {brand}, SKU {sku}, price '
    "${price}, {stock} in stock.",
    "Create the {name} in {department} / {category}. Brand {brand}, SKU {sku}, price ${price}, "
    "stock {stock}.",
    'We sell something new under {category} ({department}): "{name}", brand {brand}, SKU {sku}, '
    "${price}, {stock} pieces. Enter it",
    "Enter a new product. Department: {department}. Category: {category}. Name: {name}. Brand: "
    "{brand}. SKU: {sku}. Price: ${price}. Stock: {stock}.",
    "Put the {name} (brand {brand}, SKU {sku}) into the category {category} of {department} at "
    "${price} with a stock of {stock}.",
)
def new_product(slots: Slots, page: Observation) -> Expert:
    page = yield from click(
        page, "Products", "link", intent_phrase="", reason="Products are added there"
    )
    page = yield from click(page, "Add Product", "link", intent_phrase="")
    if field_value(page, "Department") != slots["department"]:
        page = yield from select_option(page, "Department", slots["department"])
    page = yield from click(page, "Continue", "button", intent_phrase="")
    page = yield from type_text(page, "Name", slots["name"])
    page = yield from type_text(page, "SKU", slots["sku"])
    page = yield from type_text(page, "Brand", slots["brand"])
    if field_value(page, "Category") != slots["category"]:
        page = yield from select_option(page, "Category", slots["category"])
    page = yield from type_text(page, "Price", slots["price"])
    page = yield from type_text(page, "Stock", slots["stock"])
    yield from save_product(page)
    yield from finish("The product is added")
