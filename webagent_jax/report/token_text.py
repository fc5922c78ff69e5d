"""Token ids as text, for people: with the tokenizer of the run's policy where it can be found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from absl import logging

from webagent_jax.agent.tokenizer import ChatTokenizer
from webagent_jax.tracking import atomic_files
from webagent_jax.types import IntArray


class Pieces:
    """Texts of tokens. Without a tokenizer every text is None, and the report shows bars alone."""

    def __init__(self, directory: Path | None) -> None:
        self._tokenizer = _open(directory) if directory else None
        self._known: dict[int, str] = {}

    def text(self, ids: IntArray) -> str | None:
        return self._tokenizer.decode(ids) if self._tokenizer else None

    def pieces(self, ids: IntArray) -> Sequence[str] | None:
        """The text of each token by itself; empty for one that ends the reply."""
        if self._tokenizer is None:
            return None
        for token in {int(i) for i in ids} - self._known.keys():
            self._known[token] = self._tokenizer.decode([token])
        return [self._known[int(token)] for token in ids]


def directory(workdir: Path) -> Path | None:
    """Where the tokenizer of a run's policy is: all policies of a run share theirs."""
    for candidate in _candidates(workdir):
        if (candidate / "tokenizer.json").is_file():
            return candidate
    return None


def _candidates(workdir: Path) -> Iterator[Path]:
    yield from (workdir / phase / "policy" for phase in ("grpo", "bc", "."))
    yield from (_policy(folder) for folder in (workdir, workdir / "grpo", workdir / "bc"))


def _policy(folder: Path) -> Path:
    """What the config of a run calls its policy; the folder itself where it tells none."""
    if not (folder / "config.json").exists():
        return folder
    config: Mapping[str, Any] = atomic_files.read_json(folder / "config.json").get("config", {})
    from webagent_jax import policy  # brings in jax: only who asks pays for it

    path = config.get("policy", {}).get("path")
    return policy.directory(path) if path and policy.is_directory(path) else folder


def _open(folder: Path) -> ChatTokenizer | None:
    try:
        return ChatTokenizer(folder)
    except (OSError, ValueError) as error:
        logging.warning("tokens are shown without their text: %s", error)
        return None
