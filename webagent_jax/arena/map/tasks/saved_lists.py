"""Tasks on saved lists, notes and problem reports."""

from __future__ import annotations

import random
import re
from typing import Any

from webagent_jax.arena.map.data import AGENT_USER_ID
from webagent_jax.arena.map.saved_lists import PROBLEMS
from webagent_jax.arena.map.tasks.helpers import MAP, go_to_place, sample_place
from webagent_jax.arena.task import (
    Data,
    Slots,
    TaskInstance,
    TemplateRegistry,
    answer_includes,
    page_equals,
    page_includes,
    page_lists,
    sample_row,
)
from webagent_jax.expert_steps import (
    Moves,
    answer,
    click,
    element_names,
    extract_text,
    finish,
    page_text,
    scroll_through,
    select_option,
    type_text,
)
from webagent_jax.types import Expert, Observation

tasks = TemplateRegistry("map", "map")

_NOTES = (
    "Ask about parking",
    "Open late on Fridays",
    "Meet Clara there at six",
    "Recommended by Hugo",
    "Take the umbrella",
    "Bring the camera",
    "Not on Mondays",
    "Good for rainy days",
)
_NEW_LISTS = ("Summer 2023", "With the kids", "Team outing", "Rainy days", "Date night", "Visitors")


def _read_saved(data: Data) -> list[Any]:
    return (
        data["map"]
        .execute(
            "SELECT saved.*, list.name AS list, place.name, town FROM saved"
            " JOIN list ON list.id = list_id JOIN place ON place.id = place_id"
            f" WHERE person_id = {AGENT_USER_ID} ORDER BY saved.id"
        )
        .fetchall()
    )


def _sample_list(data: Data, rng: random.Random) -> Any:
    rows = (
        data["map"]
        .execute(f"SELECT * FROM list WHERE person_id = {AGENT_USER_ID} ORDER BY id")
        .fetchall()
    )
    return sample_row(rng, rows)


def _go_to_list(page: Observation, name: str) -> Moves:
    page = yield from click(
        page, "My Lists", "link", intent_phrase="", reason="My lists are all there"
    )
    return (yield from click(page, name, "link", reason="This is the list"))


# --- questions -----------------------------------------------------------------------------------


def _sample_note(data: Data, rng: random.Random) -> TaskInstance | None:
    row = sample_row(rng, [row for row in _read_saved(data) if row["note"]])
    return TaskInstance({"place": row["name"], "list": row["list"]}, answer_includes(row["note"]))


@tasks.add(
    "note",
    _sample_note,
    "What is my note on {place} in my list {list}?",
    "In my list {list} there is a note on {place}. What does it say?",
    "Tell me what I noted about {place} in the list {list}.",
    "Read me the note that I left on {place} (list {list})",
    "Look into my list {list}: what did I write about {place}?",
)
def note(slots: Slots, page: Observation) -> Expert:
    page = yield from _go_to_list(page, slots["list"])
    page = yield from click(page, f"Note on {slots['place']}", "link", intent_phrase=slots["place"])
    note_text = next(e.value for e in page.elements.values() if e.name == "Note" and e.value)
    yield from answer(note_text, evidence="Note", reason="This is what I wrote")


def _sample_list_in_town(data: Data, rng: random.Random) -> TaskInstance | None:
    row = sample_row(rng, _read_saved(data))
    list_rows = [saved_row for saved_row in _read_saved(data) if saved_row["list"] == row["list"]]
    spec = answer_includes(
        *(saved_row["name"] for saved_row in list_rows if saved_row["town"] == row["town"]),
        excluding=[saved_row["name"] for saved_row in list_rows],
    )
    return TaskInstance({"list": row["list"], "town": row["town"]}, spec)


@tasks.add(
    "list-in-town",
    _sample_list_in_town,
    "Which places of my list {list} are in {town}?",
    "I am going to {town}. What have I saved there in my list {list}?",
    "Name what is in {town} among the places in my list {list}.",
    "Look at my list {list} and tell me what of it is in {town}",
    "From my list {list}, which places can I visit in {town}?",
)
def list_in_town(slots: Slots, page: Observation) -> Expert:
    page = yield from _go_to_list(page, slots["list"])
    names = _parse_place_names(page)
    _, views = yield from scroll_through(page)
    place_names: list[str] = []
    for name in names:
        # "Note on X" and "Remove X" of a row stand before the next row.
        word = re.escape(name)
        row = rf"(?<!Note on )(?<!{word} Remove ){word} [^,]+, {slots['town']}\b"
        if any(re.search(row, page_text(view)) for view in views):
            place_names.append(name)
    yield from answer(", ".join(place_names), reason=f"They are in {slots['town']}")


def _parse_place_names(page: Observation) -> list[str]:
    """Return the names of the places of a list."""
    return [
        name.removeprefix("Note on ")
        for name in element_names(page, "link")
        if name.startswith("Note on ")
    ]


def _sample_list_address(data: Data, rng: random.Random) -> TaskInstance | None:
    row = sample_row(rng, _read_saved(data))
    sql = "SELECT category.name FROM place JOIN category ON category.id = category_id"
    kinds = {
        saved_row["id"]: data["map"]
        .execute(f"{sql} WHERE place.id = ?", [saved_row["place_id"]])
        .fetchone()[0]
        for saved_row in _read_saved(data)
        if saved_row["list"] == row["list"]
    }
    kind = kinds[row["id"]]
    street, zip_code = (
        data["map"]
        .execute("SELECT street, zip_code FROM place WHERE id = ?", [row["place_id"]])
        .fetchone()
    )
    slots = {"list": row["list"], "category": kind.lower()}
    return (
        TaskInstance(slots, answer_includes(street, row["town"], zip_code))
        if list(kinds.values()).count(kind) == 1
        else None
    )


@tasks.add(
    "list-address",
    _sample_list_address,
    "What is the address of the {category} in my list {list}?",
    "My list {list} has one {category}. Tell me its full address with zip code.",
    "Give me street, town and zip code of the {category} on my list {list}.",
    "Where is the {category} that I keep in the list {list}? I need the whole address",
    "Look up the {category} of my list {list} and tell me its address, zip code included.",
)
def list_address(slots: Slots, page: Observation) -> Expert:
    page = yield from _go_to_list(page, slots["list"])
    for name in _parse_place_names(page):
        if re.search(rf"{re.escape(name)} {slots['category']},", page_text(page), re.IGNORECASE):
            page = yield from click(page, name, "link", intent_phrase=slots["category"])
            break
    address_text = extract_text(page, r"Address (.+? \d{5})")
    yield from answer(address_text, evidence="Address", reason="Its page tells it")


# --- edits ---------------------------------------------------------------------------------------


def _sample_save(data: Data, rng: random.Random) -> TaskInstance | None:
    place, target_list = sample_place(data, rng), _sample_list(data, rng)
    if any(row["name"] == place["name"] for row in _read_saved(data)):
        return None
    slots = {"place": place["name"], "list": target_list["name"]}
    return TaskInstance(
        slots, page_includes(f"{MAP}/lists/{target_list['id']}", "ol.saved", place["name"])
    )


@tasks.add(
    "save",
    _sample_save,
    "Save {place} to my list {list}.",
    "Add {place} to the list {list}.",
    "Put {place} on my list {list}",
    "I want to remember {place}. Save it in my list {list}.",
    "Find {place} and keep it in the list {list}.",
)
def save(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_place(page, slots["place"])
    yield from keep(page, slots["list"])
    yield from finish("The place is in the list")


def keep(page: Observation, name: str) -> Moves:
    """Save the place of the current page in a list."""
    page = yield from select_option(page, "List", name)
    return (yield from click(page, "Save", "button", intent_phrase=""))


def _sample_save_with_note(data: Data, rng: random.Random) -> TaskInstance | None:
    place, target_list, note = sample_place(data, rng), _sample_list(data, rng), rng.choice(_NOTES)
    if any(row["name"] == place["name"] for row in _read_saved(data)):
        return None
    slots = {"place": place["name"], "list": target_list["name"], "note": note}
    spec = page_includes(
        f"{MAP}/lists/{target_list['id']}", "ol.saved li:last-child", place["name"], note
    )
    return TaskInstance(slots, spec)


@tasks.add(
    "save-with-note",
    _sample_save_with_note,
    'Save {place} to my list {list} with the note "{note}".',
    'Add {place} to the list {list}, and note "{note}" on it.',
    'Put {place} on my list {list} and write "{note}" beside it',
    'Keep {place} in my list {list}. The note should be "{note}".',
    'I want {place} in the list {list} with this note: "{note}"',
)
def save_with_note(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_place(page, slots["place"])
    page = yield from keep(page, slots["list"])
    page = yield from click(page, slots["list"], "link", reason="The place is saved there now")
    page = yield from _write_note(page, slots["place"], slots["note"])
    yield from finish("The place is in the list with its note")


def _write_note(page: Observation, place: str, note: str) -> Moves:
    page = yield from click(page, f"Note on {place}", "link", intent_phrase=place)
    page = yield from type_text(page, "Note", note)
    return (yield from click(page, "Save Note", "button", intent_phrase=""))


def _sample_change_note(data: Data, rng: random.Random) -> TaskInstance | None:
    row, note = sample_row(rng, _read_saved(data)), rng.choice(_NOTES)
    slots = {"place": row["name"], "list": row["list"], "note": note}
    line = f"{row['name']}, {note}"
    spec = page_lists(f"{MAP}/lists/{row['list_id']}", "ol.saved li", "li > a, q", line)
    return TaskInstance(slots, spec)


@tasks.add(
    "change-note",
    _sample_change_note,
    'Change my note on {place} in the list {list} to "{note}".',
    'In my list {list}, the note on {place} should say "{note}".',
    'Write "{note}" as the note on {place} in my list {list}',
    'Set the note of {place} (list {list}) to "{note}".',
    'Note "{note}" on {place} in my list {list}, instead of what is there.',
)
def change_note(slots: Slots, page: Observation) -> Expert:
    page = yield from _go_to_list(page, slots["list"])
    yield from _write_note(page, slots["place"], slots["note"])
    yield from finish("The note is changed")


def _sample_remove(data: Data, rng: random.Random) -> TaskInstance | None:
    row = sample_row(rng, _read_saved(data))
    other_names = [
        saved_row["name"]
        for saved_row in _read_saved(data)
        if saved_row["list_id"] == row["list_id"] and saved_row["id"] != row["id"]
    ]
    url, links = f"{MAP}/lists/{row['list_id']}", "ol.saved li > a"
    return TaskInstance(
        {"place": row["name"], "list": row["list"]},
        page_equals(url, links, " ; ".join(other_names)),
    )


@tasks.add(
    "remove",
    _sample_remove,
    "Remove {place} from my list {list}.",
    "Take {place} off the list {list}.",
    "Delete {place} from my list {list}, and nothing else",
    "I have been to {place}. Remove it from my list {list}.",
    "{place} should no longer be in my list {list}.",
)
def remove(slots: Slots, page: Observation) -> Expert:
    page = yield from _go_to_list(page, slots["list"])
    yield from click(page, f"Remove {slots['place']}", "button", intent_phrase=slots["place"])
    yield from finish("The place is removed")


def _sample_new_list(data: Data, rng: random.Random) -> TaskInstance | None:
    first, second = sample_place(data, rng), sample_place(data, rng)
    number = 1 + data["map"].execute("SELECT max(id) FROM list").fetchone()[0]
    slots = {"list": rng.choice(_NEW_LISTS), "first": first["name"], "second": second["name"]}
    url = f"{MAP}/lists/{number}"
    return TaskInstance(slots, page_includes(url, "h1, ol.saved li > a", *slots.values()))


@tasks.add(
    "new-list",
    _sample_new_list,
    'Make a new list "{list}" and save {first} and {second} in it.',
    'Create the list "{list}" with two places: {first} and {second}.',
    'I need a list called "{list}" that has {first} and {second} in it',
    'Start a list "{list}" and put {first} as well as {second} there.',
    'Set up a new list named "{list}". Add {first} and {second} to it.',
)
def new_list(slots: Slots, page: Observation) -> Expert:
    page = yield from click(
        page, "My Lists", "link", intent_phrase="", reason="New lists are made there"
    )
    page = yield from type_text(page, "New list", slots["list"])
    page = yield from click(page, "Create List", "button", intent_phrase="")
    for name in (slots["first"], slots["second"]):
        page = yield from go_to_place(page, name)
        page = yield from keep(page, slots["list"])
    yield from finish("Both places are in the new list")


_BODIES = {
    "Wrong opening hours": ("They open at noon on Saturdays now", "They are closed on Wednesdays"),
    "Wrong position": ("It moved to the other side of the street", "It is two houses further on"),
    "Wrong phone number": ("The number belongs to a private person", "Nobody answers this number"),
    "Closed for good": ("There is a to let sign in the window", "It shut down last month"),
    "Something else": ("The name on the sign is another one", "The entrance has three steps"),
}


def _sample_report(data: Data, rng: random.Random) -> TaskInstance | None:
    place, problem = sample_place(data, rng), rng.choice(PROBLEMS)
    slots = {"place": place["name"], "problem": problem, "body": rng.choice(_BODIES[problem])}
    spec = page_includes(f"{MAP}/reports", ".report:first-of-type", *slots.values())
    return TaskInstance(slots, spec)


@tasks.add(
    "report",
    _sample_report,
    'Report a problem with {place}: "{problem}". Describe it as "{body}".',
    'Tell the map makers about {place}: problem "{problem}", text "{body}".',
    'Send a report on {place} of the kind "{problem}" that says "{body}"',
    'The map is wrong about {place}. Report "{problem}" with the words "{body}".',
    'File a problem report for {place}, "{problem}": "{body}"',
)
def report(slots: Slots, page: Observation) -> Expert:
    page = yield from go_to_place(page, slots["place"])
    page = yield from click(page, "Report a Problem", "link", intent_phrase="")
    page = yield from select_option(page, "Problem", slots["problem"])
    page = yield from type_text(page, "What is wrong?", slots["body"])
    yield from click(page, "Send Report", "button", intent_phrase="")
    yield from finish("The report is sent")
