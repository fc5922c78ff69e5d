"""Changes to customers, and new customers."""

from __future__ import annotations

import random

from webagent_jax.arena import common, random_data
from webagent_jax.arena.admin.customers import GROUPS
from webagent_jax.arena.admin.tasks.helpers import ADMIN, go_to_customer, sample_customer
from webagent_jax.arena.shop.data import NUM_CUSTOMERS
from webagent_jax.arena.task import (
    Data,
    Slots,
    TaskInstance,
    TemplateRegistry,
    all_of,
    page_equals,
    page_includes,
)
from webagent_jax.expert_steps import click, finish, select_option, type_text
from webagent_jax.types import Expert, Observation

tasks = TemplateRegistry("admin", "shopping_admin")


def _sample_customer_group(data: Data, rng: random.Random) -> TaskInstance | None:
    customer, group = sample_customer(data, rng), rng.choice(GROUPS)
    if customer["customer_group"] == group:
        return None
    spec = page_includes(f"{ADMIN}/customers/{customer['id']}", ".group", f"{group} group")
    return TaskInstance({"customer": customer["name"], "group": group}, spec)


@tasks.add(
    "customer-group",
    _sample_customer_group,
    "Move {customer} to the customer group {group}.",
    "Change the group of the customer {customer} to {group}.",
    "{customer} should be in the {group} group from now on",
    "Put {customer} into the group {group}.",
    "Make {group} the customer group of {customer}.",
)
def customer_group(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_customer(page, slots["customer"])
    page = yield from click(page, "Edit Customer", "link", intent_phrase="")
    page = yield from select_option(page, "Group", slots["group"])
    yield from click(page, "Save Customer", "button", intent_phrase="")
    yield from finish("The group is saved")


def _sample_customer_note(data: Data, rng: random.Random) -> TaskInstance | None:
    customer, note = (
        sample_customer(data, rng),
        rng.choice(random_data.read_lines("admin_customer_notes")),
    )
    if customer["note"] == note:
        return None
    spec = page_equals(f"{ADMIN}/customers/{customer['id']}", ".note", note)
    return TaskInstance({"customer": customer["name"], "note": note}, spec)


@tasks.add(
    "customer-note",
    _sample_customer_note,
    'Set the note of the customer {customer} to "{note}"',
    'Write "{note}" as the note on {customer}, in place of what is there.',
    'The note about {customer} should read: "{note}"',
    'Please note on the account of {customer}: "{note}" Nothing else should stand there.',
    'Save "{note}" as the note of {customer}',
)
def customer_note(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_customer(page, slots["customer"])
    page = yield from click(page, "Edit Customer", "link", intent_phrase="")
    page = yield from type_text(page, "Note", slots["note"])
    yield from click(page, "Save Customer", "button", intent_phrase="")
    yield from finish("The note is saved")


def _sample_customer_contact(data: Data, rng: random.Random) -> TaskInstance | None:
    customer = sample_customer(data, rng)
    phone = f"555-{rng.randint(100, 999)}-{rng.randint(1000, 9999)}"
    email = f"{customer['last'].lower()}{rng.randint(10, 99)}@newmail.example"
    url = f"{ADMIN}/customers/{customer['id']}"
    spec = all_of(page_equals(url, ".email", email), page_equals(url, ".phone", phone))
    return TaskInstance({"customer": customer["name"], "email": email, "phone": phone}, spec)


@tasks.add(
    "customer-contact",
    _sample_customer_contact,
    "{customer} has a new email address, {email}, and a new phone number, {phone}. Save both.",
    "Change the email of {customer} to {email} and the phone number to {phone}.",
    "Update the contact data of {customer}: email {email}, phone {phone}",
    "The customer {customer} can be reached at {email} and {phone} from now on. Correct it.",
    "Put {email} and {phone} into the account of {customer}.",
)
def customer_contact(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_customer(page, slots["customer"])
    page = yield from click(page, "Edit Customer", "link", intent_phrase="")
    page = yield from type_text(page, "Email", slots["email"])
    page = yield from type_text(page, "Phone", slots["phone"])
    yield from click(page, "Save Customer", "button", intent_phrase="")
    yield from finish("The contact data is saved")


def _sample_new_customer(data: Data, rng: random.Random) -> TaskInstance | None:
    person, group = rng.choice(common.persons()[NUM_CUSTOMERS:]), rng.choice(GROUPS)
    slots = {
        "first": person.first,
        "last": person.last,
        "email": person.email,
        "phone": person.phone,
        "group": group,
    }
    row = f"{person.name}\t{person.email}\t{group}\t0"
    # The list does not show phone numbers, but its search finds them.
    url = f"{ADMIN}/customers?q={person.email}+{person.phone}"
    spec = page_includes(url, "table", row)
    return TaskInstance(slots, spec)


@tasks.add(
    "new-customer",
    _sample_new_customer,
    "Add a new customer: {first} {last}, {email}, {phone}, group {group}.",
    "Create an account for {first} {last} ({email}, phone {phone}) in the group {group}.",
    "We have a new {group} customer, {first} {last}. Email {email}, phone {phone}. Add them",
    "Enter {first} {last} as a customer of the {group} group with {email} and {phone}.",
    "Register a customer for me: first name {first}, last name {last}, email {email}, "
    "phone {phone}, group {group}.",
)
def new_customer(slots: Slots, page: Observation) -> Expert:
    page = yield from click(
        page, "Customers", "link", intent_phrase="", reason="Customers have a list"
    )
    page = yield from click(page, "Add Customer", "link", intent_phrase="")
    page = yield from type_text(page, "First name", slots["first"])
    page = yield from type_text(page, "Last name", slots["last"])
    page = yield from type_text(page, "Email", slots["email"])
    page = yield from type_text(page, "Phone", slots["phone"])
    if slots["group"] != GROUPS[0]:
        page = yield from select_option(page, "Group", slots["group"])
    yield from click(page, "Save Customer", "button", intent_phrase="")
    yield from finish("The customer is saved")
