"""Projects of the word list, and their files."""

from __future__ import annotations

import datetime
import re
import string
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from webagent_jax.arena import random_data
from webagent_jax.arena.site import to_slug

_SOURCES = Path(__file__).parents[1] / "data/code_sources.txt"
_ODD_PLURALS = {"species": "species", "die": "dice", "shelf": "shelves", "axis": "axes"}
_TESTS = {
    "Python": "pytest",
    "TypeScript": "npm test",
    "Go": "go test ./...",
    "Rust": "cargo test",
    "C": "make test",
}


@dataclass(frozen=True, slots=True)
class Group:
    path: str
    name: str
    description: str


@dataclass(frozen=True, slots=True)
class Plan:
    """A project of the word list."""

    owner: str  # path of a group, or id of a person
    name: str
    language: str
    visibility: str
    license: str
    nouns: tuple[str, ...]
    description: str
    topics: str

    @property
    def slug(self) -> str:
        return to_slug(self.name)


@dataclass(frozen=True, slots=True)
class Team:
    """A project and its members, input of the sampled activity."""

    id: int
    plan: Plan
    created: datetime.datetime
    members: dict[int, str]  # role by user id
    paths: dict[str, str]  # content by path


def pluralize(noun: str) -> str:
    if noun in _ODD_PLURALS:
        return _ODD_PLURALS[noun]
    if re.search(r"[^aeiou]y$", noun):
        return noun[:-1] + "ies"
    return noun + ("es" if re.search(r"(s|x|ch|sh)$", noun) else "s")


def plans() -> Iterator[Group | Plan]:
    """Yield the entries of data/code_projects.txt: a group comes before its projects."""
    owner = ""
    for line in random_data.read_lines("code_projects"):
        if line.startswith("= "):
            group = Group(*line[2:].split(" | "))
            owner = group.path
            yield group
        elif line.startswith("@ "):
            owner = line[2:].replace("me", "1")
        else:
            name, language, visibility, terms, nouns, description, topics = line.split(" | ")
            words = tuple(nouns.split(", "))
            yield Plan(owner, name, language, visibility, terms, words, description, topics)


def files(plan: Plan, owner: str, holder: str, year: str) -> dict[str, str]:
    """Return path and content of every file of a project.

    Args:
        plan: project.
        owner: path of its namespace.
        holder: copyright holder in the license.
        year: year of the license.
    """
    rng = random_data.random_stream("code", "files", plan.name)
    minor = rng.randint(3, 19)
    words = {
        "owner": owner,
        "name": plan.name,
        "slug": plan.slug,
        "pkg": plan.slug.replace("-", "_"),
        "description": plan.description,
        "license": plan.license,
        "test": _TESTS[plan.language],
        "minor": str(minor),
        "before": str(minor - 1),
        "limit": str(rng.choice((20, 25, 32, 40, 50, 64, 100))),
        "days": str(rng.choice((7, 14, 30, 60, 90))),
        "few": str(rng.randint(1, 6)),
        "python": str(rng.choice((9, 10, 11))),
    }
    for number, noun in enumerate(plan.nouns, 1):
        words |= {f"noun{number}": noun, f"nouns{number}": pluralize(noun)}
        words |= {
            f"Noun{number}": noun.capitalize(),
            f"Nouns{number}": pluralize(noun).capitalize(),
        }
    contents = {"README.md": _format_readme(words)}
    terms = random_data.read_json("code_licenses")[plan.license]
    contents["LICENSE"] = terms.format(year=year, holder=holder)
    for language, path, text in _read_sources():
        if language in ("all", plan.language):
            contents[string.Template(path).substitute(words)] = string.Template(text).substitute(
                words
            )
    return contents


def _read_sources() -> Iterator[tuple[str, str, str]]:
    """Yield language, path and text of the templates of data/code_sources.txt."""
    text = _SOURCES.read_text(encoding="utf-8")
    for part in text.split("== ")[1:]:
        head, _, body = part.partition("\n")
        language, _, path = head.partition(" ")
        yield language, path, body


def _format_readme(words: dict[str, str]) -> str:
    return string.Template(
        "# $name\n\nVersion 1.$minor is used every day. The format of $nouns1 is stable,"
        " $nouns2 may still change.\n\n    $test\n"
    ).substitute(words)
