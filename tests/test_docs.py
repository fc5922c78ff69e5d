"""Test that the options named in documentation and configs exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from webagent_jax.agent import actions
from webagent_jax.config_options import option_type
from webagent_jax.types import Action, ActionKind, ParseError

ROOT = Path(__file__).parents[1]
FLAG = re.compile(r"--config\.([a-z0-9_]+(?:\.[a-z0-9_]+)+|seed)\b")
FILES = [
    path
    for pattern in ("README.md", "docs/*.md", "configs/*", "examples/**/*", "launch/**/*")
    for path in sorted(ROOT.glob(pattern))
    if path.suffix in (".md", ".py", ".sbatch", ".yaml", ".sh") and FLAG.search(path.read_text())
]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_options_exist(path: Path) -> None:
    for name in set(FLAG.findall(path.read_text("utf-8"))) - {"section.option"}:
        option_type(name)


def test_table_of_actions_is_complete() -> None:
    page = (ROOT / "docs" / "observations.md").read_text("utf-8")
    table = page.split("| call | effect |")[1].split("\n\n")[0]
    parsed = [actions.parse(call) for call in re.findall(r"`((?:do|go|exit).*?\))`", table)]
    assert {action.kind for action in parsed if isinstance(action, Action)} == set(ActionKind)
    assert not any(isinstance(action, ParseError) for action in parsed)


def test_options_of_other_trainers_exist() -> None:
    rows = re.findall(
        r"^\| (`.*?) \|", (ROOT / "docs" / "verl_and_trl.md").read_text("utf-8"), re.M
    )
    names = [name for row in rows for name in re.findall(r"`([a-z_]+\.[a-z_.]+)(?:=\w+)?`", row)]
    assert "grpo.group_size" in names and len(names) > 30
    for name in names:
        option_type(name)
