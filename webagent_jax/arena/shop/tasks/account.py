"""Changes to the user's account and orders."""

from __future__ import annotations

import random

from webagent_jax.arena import common, random_data
from webagent_jax.arena.shop.tasks.helpers import (
    AGENT_USER_ID,
    SHOP,
    format_dollars,
    go_to_order,
    go_to_orders,
    parse_order_rows,
    sample_order,
)
from webagent_jax.arena.task import (
    Data,
    Slots,
    TaskInstance,
    TemplateRegistry,
    page_equals,
    page_includes,
    sample_row,
)
from webagent_jax.expert_steps import Moves, click, finish, set_checked, type_text
from webagent_jax.types import Expert, Observation

tasks = TemplateRegistry("shop", "shopping")


def _sample_address(rng: random.Random) -> dict[str, str]:
    """Return a random address."""
    city = rng.choice(common.cities())
    street = f"{rng.randint(1, 300)} {rng.choice(random_data.read_lines('streets'))}"
    return {"street": street, "city": city.name, "zip_code": city.zip_code}


def _fill_address(page: Observation, slots: Slots) -> Moves:
    page = yield from type_text(page, "Street", slots["street"])
    page = yield from type_text(page, "City", slots["city"])
    return (yield from type_text(page, "Zip code", slots["zip_code"]))


def _sample_new_address(data: Data, rng: random.Random) -> TaskInstance | None:
    slots = _sample_address(rng) | {
        "name": common.agent_user().name,
        "phone": common.agent_user().phone,
    }
    # The addresses of the account stay in the address book.
    sql = "SELECT name, street, city, zip_code, phone FROM address WHERE customer_id = ?"
    rows = data["shop"].execute(sql, [AGENT_USER_ID]).fetchall()
    texts = [
        f"{address['name']}, {_format_address(address)}, {address['phone']}"
        for address in (slots, *map(dict, rows))
    ]
    return TaskInstance(slots, page_includes(f"{SHOP}/account/addresses", "address", *texts))


def _format_address(slots: Slots) -> str:
    return f"{slots['street']}, {slots['city']} {slots['zip_code']}"


@tasks.add(
    "new-address",
    _sample_new_address,
    "Add a new address to my address book: {name}, {street}, {city} {zip_code}, phone {phone}.",
    "Save this address in my account: {name}, {street}, {city}, {zip_code}. Phone: {phone}.",
    "I want to have things sent to {name}, {street}, {city}, zip code {zip_code}, phone {phone}, "
    "as well. Add it to my addresses",
    "Put {name}, {street}, {city} {zip_code}, {phone} into my address book.",
    "Create another address: name {name}, street {street}, city {city}, zip code {zip_code}, "
    "phone {phone}.",
)
def new_address(slots: Slots, page: Observation) -> Expert:
    page = yield from click(page, "Account", "link", intent_phrase="")
    page = yield from click(page, "Address Book", "link", intent_phrase="")
    page = yield from click(page, "Add New Address", "link", intent_phrase="")
    page = yield from type_text(page, "Name", slots["name"])
    page = yield from _fill_address(page, slots)
    page = yield from type_text(page, "Phone", slots["phone"])
    yield from click(page, "Save Address", "button", intent_phrase="")
    yield from finish("The address is saved")


def _sample_new_default_address(data: Data, rng: random.Random) -> TaskInstance | None:
    slots = _sample_address(rng)
    spec = page_includes(
        f"{SHOP}/account/addresses", "tr:first-of-type address", _format_address(slots)
    )
    return TaskInstance(slots, spec)


@tasks.add(
    "moved",
    _sample_new_default_address,
    "I recently moved, my address is {street}, {city}, {zip_code}: update my default address.",
    "Change my default address to {street}, {city} {zip_code}.",
    "My home is now {street}, {city}, {zip_code}. Correct the default address in my account",
    "Update the default address in my address book: {street}, {city}, zip code {zip_code}.",
    "We live at {street}, {city} {zip_code} now. Please edit my default address.",
)
def new_default_address(slots: Slots, page: Observation) -> Expert:
    page = yield from click(page, "Account", "link", intent_phrase="")
    page = yield from click(page, "Address Book", "link", intent_phrase="")
    edit = next(e.name for e in page.elements.values() if e.name.startswith("Edit "))
    page = yield from click(
        page, edit, "link", intent_phrase="", reason="The default address comes first"
    )
    page = yield from _fill_address(page, slots)
    yield from click(page, "Save Address", "button", intent_phrase="")
    yield from finish("The address is changed")


def _sample_order_address(data: Data, rng: random.Random) -> TaskInstance | None:
    order = sample_order(data, rng, "status IN ('Pending', 'Processing')")
    slots = {"number": str(order["id"])} | _sample_address(rng)
    spec = page_includes(f"{SHOP}/account/orders/{order['id']}", "address", _format_address(slots))
    return TaskInstance(slots, spec)


@tasks.add(
    "order-address",
    _sample_order_address,
    "Change the delivery address of my order {number} to {street}, {city}, {zip_code}.",
    "Order {number} should go to {street}, {city} {zip_code}: change its address.",
    "Send my order {number} to {street}, {city}, zip code {zip_code} instead",
    "I will not be at home. Have order {number} delivered to {street}, {city} {zip_code}.",
    "Update where order {number} is delivered: {street}, {city}, {zip_code}.",
)
def order_address(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_order(page, slots["number"])
    page = yield from click(page, "Change Address", "link", intent_phrase="")
    page = yield from _fill_address(page, slots)
    yield from click(page, "Save Address", "button", intent_phrase="")
    yield from finish("The order goes to the new address")


def _sample_cancel(data: Data, rng: random.Random) -> TaskInstance | None:
    order = sample_order(data, rng, "status IN ('Pending', 'Processing')")
    description = rng.choice(
        (f"number {order['id']}", f"of {format_dollars(order['total'])} dollars", f"{order['id']}")
    )
    spec = page_includes(f"{SHOP}/account/orders/{order['id']}", "h1", "Cancelled")
    return TaskInstance({"which": description}, spec)


@tasks.add(
    "cancel",
    _sample_cancel,
    "Cancel my order {which}.",
    "I do not want my order {which} any more: cancel it.",
    "Please cancel the order {which}",
    "Stop my open order {which}; it should be cancelled.",
    "Go to my order {which} and cancel it.",
)
def cancel(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_orders(page)
    word = slots["which"].split()[-2 if "dollars" in slots["which"] else -1]
    row = next(row for row in parse_order_rows(page) if word in (row[1], row[3]))
    page = yield from click(page, row[1], "link", intent_phrase=word)
    yield from click(page, "Cancel Order", "button", intent_phrase="")
    yield from finish("The order is cancelled")


_DETAILS = {
    "first name": ("First name", "first"),
    "last name": ("Last name", "last"),
    "phone number": ("Phone", "phone"),
    "email": ("Email", "email"),
}
"""Label of the field and column of the customer, by the name in the instruction."""


def _sample_details(data: Data, rng: random.Random) -> TaskInstance | None:
    field = sample_row(rng, list(_DETAILS))
    value = {
        "first name": rng.choice(("Eleonora", "Norah", "Nory", "Honora")),
        "last name": rng.choice(random_data.read_lines("last_names")),
        "phone number": f"555-{rng.randint(100, 999)}-{rng.randint(1000, 9999)}",
        "email": f"nora{rng.randint(10, 99)}@letterbox.example",
    }[field]
    sql = "SELECT first, last, email, phone FROM customer WHERE id = ?"
    customer = dict(data["shop"].execute(sql, [AGENT_USER_ID]).fetchone())
    # The other fields keep their values.
    customer[_DETAILS[field][1]] = value
    text = "{first} {last}, {email}, {phone}".format_map(customer)
    spec = page_equals(f"{SHOP}/account", "section p:first-of-type", text)
    return TaskInstance({"field": field, "value": value}, spec)


@tasks.add(
    "details",
    _sample_details,
    "Change my {field} to {value}.",
    "Update the {field} in my account to {value}.",
    "My {field} is {value} now. Correct it in my details",
    "Set the {field} of my account to {value}.",
    "Please edit my details: the {field} should be {value}.",
)
def details(slots: Slots, page: Observation) -> Expert:
    page = yield from click(page, "Account", "link", intent_phrase="")
    page = yield from click(page, "Edit Details", "link", intent_phrase="")
    page = yield from type_text(page, _DETAILS[slots["field"]][0], slots["value"])
    yield from click(page, "Save Details", "button", intent_phrase="")
    yield from finish("The details are saved")


def _sample_newsletter(data: Data, rng: random.Random) -> TaskInstance | None:
    spec = page_includes(f"{SHOP}/account", "main", "Newsletter: subscribed")
    return TaskInstance({"shop": rng.choice(("Marigold", "this shop"))}, spec)


@tasks.add(
    "newsletter",
    _sample_newsletter,
    "Subscribe to the newsletter of {shop}.",
    "Sign me up for the newsletter of {shop}.",
    "I want to get the newsletter of {shop}",
    "Turn on the newsletter of {shop} in my account.",
    "Change my details so that {shop} sends me its newsletter.",
)
def newsletter(slots: Slots, page: Observation) -> Expert:
    page = yield from click(page, "Account", "link", intent_phrase="")
    page = yield from click(page, "Edit Details", "link", intent_phrase="")
    page = yield from set_checked(page, "Send me the newsletter")
    yield from click(page, "Save Details", "button", intent_phrase="")
    yield from finish("The newsletter is subscribed")
