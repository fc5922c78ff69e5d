"""What the sites agree on: what day it is, who lives here, and where."""

from __future__ import annotations

import datetime
import functools
from dataclasses import dataclass

from webagent_jax.arena import random_data

TODAY = datetime.date(2023, 6, 15)
"""No page looks at a clock: in the arena it is always this Thursday, ten in the morning."""

NOW = datetime.datetime(2023, 6, 15, 10, 0)


@dataclass(frozen=True, slots=True)
class City:
    name: str
    zip_code: str
    population: int
    x: float  # km east of the centre of the map
    y: float  # km north of it


@dataclass(frozen=True, slots=True)
class Person:
    """A customer of the shop, who may write in the forum and work on the code host as well."""

    id: int  # 1 is the person whose browser the agent uses
    first: str
    last: str
    username: str
    email: str
    phone: str
    street: str  # with the number: "214 Orchard Street"
    city: City
    password: str

    @property
    def name(self) -> str:
        return f"{self.first} {self.last}"


@functools.cache
def cities() -> tuple[City, ...]:
    """The largest first."""
    return tuple(City(**row) for row in random_data.table("cities"))


@functools.cache
def persons() -> tuple[Person, ...]:
    """Everybody, by id. No two have the same name, user name or address of mail."""
    rng = random_data.stream("persons")
    names = [
        (first, last)
        for first in random_data.lines("first_names")
        for last in random_data.lines("last_names")
    ]
    chosen = [("Nora", "Whitfield"), *rng.sample(names, 1200)]
    people = [_person(index, *name) for index, name in enumerate(dict.fromkeys(chosen), 1)]
    return tuple({person.username: person for person in people}.values())


def _person(index: int, first: str, last: str) -> Person:
    rng = random_data.stream("persons", first, last)
    a, b = first.lower(), last.lower()
    username = rng.choice((f"{a}.{b}", f"{a}{b[0]}", f"{a[0]}{b}", f"{b}{a[:2]}"))
    username += str(rng.randint(2, 99)) if rng.random() < 0.6 else ""
    weights = [city.population for city in cities()]
    return Person(
        id=index,
        first=first,
        last=last,
        username=username,
        email=f"{a}.{b}@{rng.choice(('mailbox', 'postino', 'letterbox'))}.example",
        phone=f"555-{rng.randint(100, 999)}-{rng.randint(1000, 9999)}",
        street=f"{rng.randint(1, 480)} {rng.choice(random_data.lines('streets'))}",
        city=rng.choices(cities(), weights)[0],
        password=f"{a}-{rng.randint(1000, 9999)}",
    )


def me() -> Person:
    """Whose browser the agent uses, on every site where people have accounts."""
    return persons()[0]
