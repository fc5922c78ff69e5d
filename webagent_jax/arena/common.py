"""Data that all sites share: the date, the people and the cities."""

from __future__ import annotations

import datetime
import functools
from dataclasses import dataclass

from webagent_jax.arena import random_data

TODAY = datetime.date(2023, 6, 15)
"""Date of all pages, a Thursday. No page reads a clock: it is always ten in the morning."""

NOW = datetime.datetime(2023, 6, 15, 10, 0)


@dataclass(frozen=True, slots=True)
class City:
    """City on the map."""

    name: str
    zip_code: str
    population: int
    x: float  # km east of the center of the map
    y: float  # km north of the center of the map


@dataclass(frozen=True, slots=True)
class Person:
    """Customer of the shop; some also have accounts on the forum and the code host."""

    id: int  # 1 is the user whose browser the agent controls
    first: str
    last: str
    username: str
    email: str
    phone: str
    street: str  # with the house number: "214 Orchard Street"
    city: City
    password: str

    @property
    def name(self) -> str:
        """First and last name."""
        return f"{self.first} {self.last}"


@functools.cache
def cities() -> tuple[City, ...]:
    """Return all cities, the largest first."""
    return tuple(City(**row) for row in random_data.read_json("cities"))


@functools.cache
def persons() -> tuple[Person, ...]:
    """Return all people by id. Names, user names and email addresses are unique."""
    rng = random_data.random_stream("persons")
    names = [
        (first, last)
        for first in random_data.read_lines("first_names")
        for last in random_data.read_lines("last_names")
    ]
    # The user of the agent comes first and has the id 1.
    full_names = [("Nora", "Whitfield"), *rng.sample(names, 1200)]
    people = [_person(index, *name) for index, name in enumerate(dict.fromkeys(full_names), 1)]
    # Of people with equal user names only the last one remains.
    return tuple({person.username: person for person in people}.values())


def _person(index: int, first: str, last: str) -> Person:
    # A stream per person, so that a change of one person affects no other.
    rng = random_data.random_stream("persons", first, last)
    forename, surname = first.lower(), last.lower()
    username = rng.choice(
        (
            f"{forename}.{surname}",
            f"{forename}{surname[0]}",
            f"{forename[0]}{surname}",
            f"{surname}{forename[:2]}",
        )
    )
    username += str(rng.randint(2, 99)) if rng.random() < 0.6 else ""
    weights = [city.population for city in cities()]
    return Person(
        id=index,
        first=first,
        last=last,
        username=username,
        email=f"{forename}.{surname}@{rng.choice(('mailbox', 'postino', 'letterbox'))}.example",
        phone=f"555-{rng.randint(100, 999)}-{rng.randint(1000, 9999)}",
        street=f"{rng.randint(1, 480)} {rng.choice(random_data.read_lines('streets'))}",
        city=rng.choices(cities(), weights)[0],
        password=f"{forename}-{rng.randint(1000, 9999)}",
    )


def agent_user() -> Person:
    """Return the user whose browser the agent controls on every site with accounts."""
    return persons()[0]
