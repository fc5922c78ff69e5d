"""Conversion of token ids to text with the tokenizer of the policy of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from absl import logging

from webagent_jax.agent.tokenizer import ChatTokenizer
from webagent_jax.config import ConfigError
from webagent_jax.tracking import atomic_files
from webagent_jax.types import IntArray


class TokenDecoder:
    """Decoder of token ids; without a tokenizer all results are None and the report shows bars."""

    def __init__(self, directory: Path | None) -> None:
        self._tokenizer = _open(directory) if directory else None
        self._text_by_id: dict[int, str] = {}

    def text(self, ids: IntArray) -> str | None:
        """Return the text of a token sequence."""
        return self._tokenizer.decode(ids) if self._tokenizer else None

    def pieces(self, ids: IntArray) -> Sequence[str] | None:
        """Return the text of each token; empty for a token that ends the response."""
        if self._tokenizer is None:
            return None
        # Tokens are decoded one by one, so the texts of all tokens are cached by id.
        for token in {int(i) for i in ids} - self._text_by_id.keys():
            self._text_by_id[token] = self._tokenizer.decode([token])
        return [self._text_by_id[int(token)] for token in ids]


def directory(workdir: Path) -> Path | None:
    """Return the directory of the tokenizer, which all policies of a run share; None if missing."""
    for candidate in _candidates(workdir):
        if (candidate / "tokenizer.json").is_file():
            return candidate
    return None


def _candidates(workdir: Path) -> Iterator[Path]:
    # Copies within the workdir first: they remain if the original policy is moved.
    yield from (workdir / phase / "policy" for phase in ("grpo", "bc", "."))
    yield from (_policy(folder) for folder in (workdir, workdir / "grpo", workdir / "bc"))


def _policy(folder: Path) -> Path:
    """Return the policy directory in the config of a run; `folder` if the config has none."""
    if not (folder / "config.json").exists():
        return folder
    config: Mapping[str, Any] = atomic_files.read_json(folder / "config.json").get("config", {})
    # Import on demand: the module imports JAX.
    from webagent_jax import policy

    path = config.get("policy", {}).get("path")
    if not path:
        return folder
    try:
        return policy.tokenizer_dir(path, download=False)
    # Without a tokenizer, or with a damaged one, the report is complete except for this text.
    except (FileNotFoundError, ConfigError):
        return folder


def _open(folder: Path) -> ChatTokenizer | None:
    try:
        return ChatTokenizer(folder)
    except (OSError, ValueError) as error:
        logging.warning("the report shows tokens without text: %s", error)
        return None
