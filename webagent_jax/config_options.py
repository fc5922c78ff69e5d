"""Names, types, defaults and comments of all config options, for help and documentation."""

from __future__ import annotations

import ast
import dataclasses
import difflib
import inspect
import re
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from webagent_jax import config
from webagent_jax.config import ConfigError, RunConfig


@dataclass(frozen=True)
class ConfigOption:
    """Field of a config dataclass that is not itself a group of options."""

    path: str  # such as grpo.group_size
    type: str  # name of the type, or the choices separated by " | "
    value: str  # as written on the command line; empty for an empty string or list
    comment: str  # comment of the field in config.py


@dataclass(frozen=True)
class OptionGroup:
    """Options of one config dataclass."""

    path: str  # such as grpo.optimizer; empty for the options of RunConfig itself
    summary: str  # first line of the docstring
    options: tuple[ConfigOption, ...]


def groups(cfg: RunConfig | None = None) -> Iterator[OptionGroup]:
    """Yield the groups of options, in the order of config.py, each before its subgroups.

    Args:
        cfg: config with the values of the options; None for the defaults of the package.
    """
    comments = _comments(Path(inspect.getfile(config)).read_text("utf-8"))
    yield from _groups(cfg or RunConfig(), "", comments)


def option_type(path: str) -> Any:
    """Return the type hint of an option, or the dataclass of a group of options.

    Raises:
        ConfigError: `path` names no option; the message suggests similar ones.
    """
    cls: Any = RunConfig
    for name in path.split("."):
        hints = typing.get_type_hints(cls) if dataclasses.is_dataclass(cls) else {}
        if name not in hints:
            raise ConfigError(f"unknown option --config.{path}{_suggestion(path)}")
        cls = hints[name]
    return cls


def _suggestion(path: str) -> str:
    """Return `; did you mean --config.grpo.updates?`, or the command that lists all options."""
    paths = [option.path for group in groups() for option in group.options]
    leaf = path.rpartition(".")[2]
    # A correct name in another group is a closer match than a similar path.
    same_leaf = [candidate for candidate in paths if candidate.rpartition(".")[2] == leaf]
    matches = same_leaf[:3] or difflib.get_close_matches(path, paths, n=1, cutoff=0.75)
    if not matches:
        return "; `webagent options` lists all"
    return f"; did you mean {' or '.join(f'--config.{match}' for match in matches)}?"


def _groups(value: Any, path: str, comments: dict[tuple[str, str], str]) -> Iterator[OptionGroup]:
    cls = type(value)
    hints = typing.get_type_hints(cls)
    prefix = f"{path}." if path else ""
    fields = dataclasses.fields(cls)
    options = tuple(
        ConfigOption(
            f"{prefix}{field.name}",
            _type_name(hints[field.name]),
            _format(getattr(value, field.name)),
            comments[cls.__name__, field.name],
        )
        for field in fields
        if not dataclasses.is_dataclass(hints[field.name])
    )
    yield OptionGroup(path, inspect.getdoc(cls).splitlines()[0], options)  # type: ignore[union-attr]
    for field in fields:
        if dataclasses.is_dataclass(hints[field.name]):
            yield from _groups(getattr(value, field.name), f"{prefix}{field.name}", comments)


def _type_name(hint: Any) -> str:
    if typing.get_origin(hint) is typing.Literal:
        return " | ".join(map(str, typing.get_args(hint)))
    if typing.get_origin(hint) is tuple:
        return f"list of {typing.get_args(hint)[0].__name__}"
    return str(hint.__name__)


def _format(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _comments(source: str) -> dict[tuple[str, str], str]:
    """Return the comment of each field, by class and field name.

    A field has its comment on the lines above it or at the end of its line. Fields below one
    comment share it, if they have none of their own.
    """
    lines = source.splitlines()
    comments: dict[tuple[str, str], str] = {}
    for cls in ast.parse(source).body:
        if not isinstance(cls, ast.ClassDef):
            continue
        last_line, last_comment = 0, ""
        for node in cls.body:
            if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
                continue
            comment = _comment_of(lines, node) or (
                last_comment if node.lineno == last_line + 1 else ""
            )
            comments[cls.name, node.target.id] = comment
            last_line, last_comment = node.end_lineno or node.lineno, comment
    return comments


def _comment_of(lines: list[str], node: ast.AnnAssign) -> str:
    # Columns of `ast` count bytes, those of a string characters.
    end = lines[(node.end_lineno or node.lineno) - 1].encode()[node.end_col_offset or 0 :].decode()
    if match := re.match(r"\s*#\s*(.*)", end):
        return _entry(match[1].strip())
    comment_lines = []
    for line in reversed(lines[: node.lineno - 1]):
        if not line.strip().startswith("#"):
            break
        comment_lines.append(line.strip().lstrip("#").strip())
    return _entry(" ".join(reversed(comment_lines)))


def _entry(comment: str) -> str:
    """Return a comment in the form of a table: with a capital, a single sentence without period."""
    if comment.count(". ") == 0:
        comment = comment.removesuffix(".")
    return comment[:1].upper() + comment[1:]
