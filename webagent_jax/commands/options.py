"""List the options of a config: value, type and meaning.

webagent options
webagent options temperature
webagent options --config=arena:smollm2 grpo
webagent options --config=arena:smollm2 --changed

With a word, lists only the options whose name or comment contains it. A value that is not the
default of the package has the default behind it.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Sequence

from absl import flags

from webagent_jax import config_options
from webagent_jax.cli.run_config import run_config
from webagent_jax.config import ConfigError, RunConfig
from webagent_jax.config_options import ConfigOption

_CHANGED = flags.DEFINE_bool(
    "changed", False, "List only the options that the config sets to another value."
)
_MARKDOWN = flags.DEFINE_bool("markdown", False, "Print docs/options.md.")
_WIDTH = 80


def main(argv: Sequence[str]) -> None:
    """Print the options."""
    if _MARKDOWN.value:
        sys.stdout.write(markdown())
        return
    words = [word.lower() for word in argv[1:]]
    options = [
        (option, default.value)
        for option, default in zip(all_options(run_config()), all_options(), strict=True)
        if _matches(option, words)
    ]
    if not options:
        raise ConfigError(f"no option matches {' '.join(words)!r}; `webagent options` lists all")
    for option, default_value in options:
        if option.value != default_value or not _CHANGED.value:
            print(_text(option, default_value))


def markdown() -> str:
    """Return the content of docs/options.md."""
    lines = [
        "# Options",
        "",
        "All options of a config with type, default and meaning. `--config.NAME=VALUE` sets one;",
        "commas separate elements of a list, as in `--config.suite.tasks=click-tab,enter-text`.",
        "A config file may have other values; `webagent options --config=NAME` lists them.",
        "`webagent options --markdown` writes this page from `webagent_jax/config.py`; a test",
        "compares them.",
    ]
    for group in config_options.groups():
        lines += ["", f"## {group.path or 'General'}", "", group.summary, ""]
        if group.options:
            lines += ["| option | type | default | meaning |", "|---|---|---|---|"]
        for option in group.options:
            cells = (f"`{option.path}`", option.type, _code(option.value), option.comment)
            lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines) + "\n"


def all_options(cfg: RunConfig | None = None) -> list[ConfigOption]:
    """Return the options of all groups with the values of a config, in the order of config.py.

    Args:
        cfg: config; None for the defaults of the package.
    """
    return [option for group in config_options.groups(cfg) for option in group.options]


def _matches(option: ConfigOption, words: Sequence[str]) -> bool:
    text = f"{option.path} {option.comment}".lower()
    return all(word in text for word in words)


def _text(option: ConfigOption, default: str) -> str:
    indent = " " * 4
    head = f"{option.path}={option.value}"
    if option.value != default:
        head += f"  (default: {default or 'empty'})"
    body = f"{option.comment} ({option.type})"
    wrapped = textwrap.wrap(body, _WIDTH, initial_indent=indent, subsequent_indent=indent)
    return "\n".join([head, *wrapped])


def _code(text: str) -> str:
    return f"`{text}`" if text else ""
