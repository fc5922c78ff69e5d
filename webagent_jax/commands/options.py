"""List the options of a config: type, default and meaning.

webagent options
webagent options grpo
webagent options temperature

With a word, lists only the options whose name or comment contains it. --config.NAME=VALUE sets an
option; the default is that of the package, which a config file may replace.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Sequence

from absl import flags

from webagent_jax import config_options
from webagent_jax.config import ConfigError

_MARKDOWN = flags.DEFINE_bool("markdown", False, "Print docs/options.md.")
_WIDTH = 80


def main(argv: Sequence[str]) -> None:
    """Print the options."""
    if _MARKDOWN.value:
        sys.stdout.write(markdown())
        return
    words = [word.lower() for word in argv[1:]]
    blocks = [_text(option) for option in all_options() if _matches(option, words)]
    if not blocks:
        raise ConfigError(f"no option matches {' '.join(words)!r}; `webagent options` lists all")
    sys.stdout.write("\n".join(blocks) + "\n")


def markdown() -> str:
    """Return the content of docs/options.md."""
    lines = [
        "# Options",
        "",
        "All options of a config with type, default and meaning. `--config.NAME=VALUE` sets one;",
        "commas separate elements of a list, as in `--config.suite.tasks=click-tab,enter-text`.",
        "A config file may have other defaults. `webagent options --markdown`",
        "writes this page from `webagent_jax/config.py`; a test compares them.",
    ]
    for group in config_options.groups():
        lines += ["", f"## {group.path or 'General'}", "", group.summary, ""]
        if group.options:
            lines += ["| option | type | default | meaning |", "|---|---|---|---|"]
        for option in group.options:
            cells = (f"`{option.path}`", option.type, _code(option.default), option.comment)
            lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines) + "\n"


def all_options() -> list[config_options.ConfigOption]:
    """Return the options of all groups, in the order of config.py."""
    return [option for group in config_options.groups() for option in group.options]


def _matches(option: config_options.ConfigOption, words: Sequence[str]) -> bool:
    text = f"{option.path} {option.comment}".lower()
    return all(word in text for word in words)


def _text(option: config_options.ConfigOption) -> str:
    indent = " " * 4
    head = f"{option.path}={option.default}"
    body = f"{option.comment} ({option.type})"
    wrapped = textwrap.wrap(body, _WIDTH, initial_indent=indent, subsequent_indent=indent)
    return "\n".join([head, *wrapped])


def _code(text: str) -> str:
    return f"`{text}`" if text else ""
