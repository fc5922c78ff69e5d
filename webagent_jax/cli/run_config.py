"""Flag --config with its overrides, and the configs of the package."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from absl import flags
from ml_collections import ConfigDict, config_flags

from webagent_jax import config, config_options
from webagent_jax.config import ConfigError, RunConfig
from webagent_jax.suites.user_code import add_current_folder

_CONFIG = config_flags.DEFINE_config_file(
    "config",
    None,
    "Config file or built-in config, as FILE[:variant] or NAME[:variant]. "
    "Default: quickstart. --config.SECTION.OPTION=VALUE overrides an option; `webagent options` "
    "lists them.",
)


class _ConfigFileParser(flags.ArgumentParser[ConfigDict]):
    """Parser of --config for config files that return a RunConfig or a ConfigDict.

    Args:
        parser: the parser of ml_collections, which loads the file.
    """

    def __init__(self, parser: flags.ArgumentParser[Any]) -> None:
        self._parser = parser

    def parse(self, path: str) -> ConfigDict:
        """Return the config of the file as a ConfigDict, which overrides can change.

        Raises:
            ConfigError: the file returns another type, or cannot open a file.
        """
        values = self._parser.parse(path)
        if isinstance(values, RunConfig):
            return config.to_config_dict(values).lock()
        try:
            # ml_collections defers errors of files until the first access.
            getattr(values, "keys", None)
        except OSError as error:
            raise ConfigError(f"the config file fails: {error.__cause__}") from error
        if not isinstance(values, ConfigDict):
            raise ConfigError(
                f"get_config() of the config file returns a {type(values).__name__}: return "
                "webagent_jax.config.RunConfig(...)"
            )
        return values


_FLAG = flags.FLAGS["config"]
_FLAG.parser = _ConfigFileParser(_FLAG.parser)
_DEFAULT = "quickstart"
_DIRECTORY = Path(__file__).parents[1] / "configs"
_OVERRIDE = re.compile(r"(--?(?:no)?config\.([^=]+))(?:=(.*))?", re.DOTALL)


def run_config() -> RunConfig:
    """Return the validated config of --config and its overrides.

    Raises:
        ConfigError: an option is unknown or invalid.
    """
    return config.from_config_dict(_CONFIG.value)


def load_checked_config() -> RunConfig:
    """Return the validated config of a run with episodes.

    Raises:
        ConfigError: an option is unknown or invalid, or a requirement of the suite is missing, such
            as a site address.
    """
    from webagent_jax.suites import registry

    cfg = run_config()
    registry.check_requirements(cfg.suite)
    return cfg


def with_config_path(argv: Sequence[str]) -> list[str]:
    """Return the arguments with --config first, set to the path of a config file.

    Config files of users may import modules of the current folder, as `suite.factory` may.

    Raises:
        ConfigError: there is no such config, or an override names no option.
    """
    value, others = _DEFAULT, []
    args = iter(argv[1:])
    for arg in args:
        name, equals, text = arg.partition("=")
        if name in ("--config", "-config"):
            value = text if equals else next(args, "")
        elif match := _OVERRIDE.match(arg):
            flag, path, text = match.groups()
            is_list = config_options.option_type(path) == tuple[str, ...]
            others.append(f"{flag}={_list_literal(text)}" if is_list and text is not None else arg)
        elif name.startswith("-") and "." in name:
            path = name.lstrip("-")
            config_options.option_type(path)
            raise ConfigError(f"unknown flag {name}; did you mean --config.{path}?")
        else:
            others.append(arg)
    path = find_config(value)
    if not path.startswith(f"{_DIRECTORY}{os.sep}"):
        # A config of the user may import other modules of the user.
        add_current_folder()
    # ml_collections requires the config before its overrides.
    return [argv[0], f"--config={path}", *others]


def _list_literal(text: str) -> str:
    """Return elements separated by commas as a Python tuple, which ml_collections parses.

    Without quotes, it would parse "a:1,b:2" or "list-in-town,map" as a Python expression and fail.
    """
    if text.startswith(("(", "[", "'", '"')):
        return text
    return repr(tuple(element.strip() for element in text.split(",") if element.strip()))


def find_config(value: str) -> str:
    """Return FILE[:variant] for a file, or for the name of a built-in config.

    Raises:
        ConfigError: there is no such config.
    """
    name, colon, variant = value.partition(":")
    is_name = "/" not in name and not name.endswith(".py")
    path = _DIRECTORY / f"{name}.py" if is_name else Path(name)
    if path.is_file():
        return f"{path}{colon}{variant}"
    names = sorted(file.stem for file in _DIRECTORY.glob("*.py"))
    suggestions = difflib.get_close_matches(Path(name).stem, names, n=1)
    hint = f"; did you mean --config={suggestions[0]}{colon}{variant}?" if suggestions else ""
    raise ConfigError(
        f"no config {name!r}{hint}\nBuilt-in configs: {', '.join(names)}. "
        "Your own: --config=PATH.py[:variant]"
    )
