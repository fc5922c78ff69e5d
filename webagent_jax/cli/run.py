"""Execution of a subcommand: flags, help and logging."""

from __future__ import annotations

import importlib
import logging
import os
import re
import signal
import sys
import textwrap
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

from absl import app, flags
from absl import logging as absl_logging

from webagent_jax.cli import errors

_VERBOSE = flags.DEFINE_bool("verbose", False, "Print the logs of libraries.")
flags.DEFINE_bool("traceback", False, "Print the traceback of an error that the user can fix.")

_PACKAGE = Path(__file__).parents[1]
_HELP_WIDTH = 80
# Journal of their collection, and the collected ones.
_DEMOS = ("demo_episodes/*.jsonl", "demos/*/*/features.json")
_REPEAT_SECONDS = 0.1  # delay of a repeated Ctrl-C


def run(command: str, options: Sequence[str]) -> None:
    """Parse the options of a subcommand, run it and exit."""
    module = load_command(command)
    # ml_collections reads the overrides from here.
    sys.argv = [f"webagent {command}", *options]
    if "config" in flags.FLAGS:
        from webagent_jax.cli import run_config

        sys.argv = run_config.with_config_path(sys.argv)

    def main(argv: Sequence[str]) -> None:
        configure_logging(verbose=_VERBOSE.value)
        try:
            module.main(argv)
        except KeyboardInterrupt as error:
            raise errors.InterruptedRunError(_interruption()) from error
        # Buffered output could otherwise fail at exit, where nothing catches the error.
        sys.stdout.flush()

    # With FLAGS as the parser, errors propagate; `app.run` would print them with its own usage.
    app.run(main, sys.argv, flags_parser=flags.FLAGS)


def load_command(command: str) -> ModuleType:
    """Return the module of a subcommand."""
    name = command.replace(" ", "_").replace("-", "_")
    return importlib.import_module(f"webagent_jax.commands.{name}")


def help_text(command: str) -> str:
    """Return docstring and flags of a subcommand."""
    module = load_command(command)
    lines = [f"usage: webagent {command} [options]", "", (module.__doc__ or "").strip(), ""]
    return "\n".join([*lines, "options:", *_flag_lines(module.__name__), ""])


def _flag_lines(main_module: str) -> Iterator[str]:
    """Yield the lines of the flags of this package, those of the subcommand first."""
    modules = flags.FLAGS.flags_by_module_dict()
    names = [name for name in modules if name.startswith("webagent_jax.")]
    for name in sorted(names, key=lambda name: (name != main_module, name == __name__, name)):
        for flag in modules[name]:
            value = "" if flag.boolean else "=" + flag.name.upper()
            yield f"  --{flag.name}{value}"
            # absl puts the choices before the help.
            text = re.sub(r"^<[^>]*>: ", "", flag.help or "")
            if isinstance(flag.parser, flags.EnumParser):
                choices = [choice for choice in flag.parser.enum_values if choice]
                text += f" One of: {', '.join(choices)}."
            if flag.value not in (None, "", False, []):
                text += f" Default: {flag.value}."
            indent = " " * 6
            yield from textwrap.wrap(
                text, _HELP_WIDTH, initial_indent=indent, subsequent_indent=indent
            )


def _interruption() -> str:
    """Return the message of Ctrl-C, with the results saved in the workdir of the run."""
    workdir = flags.FLAGS.workdir if "workdir" in flags.FLAGS else None
    # `webagent collect` writes no config.json.
    if workdir is None or not any(
        Path(workdir, name).exists() for name in ("config.json", "demo_episodes", "demos")
    ):
        return "interrupted"
    checkpoints = [
        max(numbers, key=lambda path: int(path.name))
        for folder in sorted(Path(workdir).rglob("checkpoints"))
        if (numbers := [path for path in folder.iterdir() if path.name.isdigit()])
    ]
    saved = [str(path.relative_to(workdir)) for path in checkpoints]
    if any(Path(workdir).rglob("episodes/*.jsonl")):
        saved.append("the finished episodes")
    if any(any(Path(workdir).rglob(pattern)) for pattern in _DEMOS):
        saved.append("the finished demonstrations")
    return (
        f"interrupted; {workdir} contains {', '.join(saved) or 'no results yet'}.\n"
        "The same command continues the run."
    )


def configure_logging(*, verbose: bool) -> None:
    """Print warnings of this package and errors of libraries; everything if `verbose`."""
    absl_logging.set_verbosity(absl_logging.INFO if verbose else absl_logging.WARNING)
    if not verbose:
        absl_logging.get_absl_handler().addFilter(_is_relevant)
        # transformers has its own log handler.
        os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    sys.unraisablehook = _handle_unraisable


def _is_relevant(record: logging.LogRecord) -> bool:
    if Path(record.pathname).is_relative_to(_PACKAGE):
        return True
    # asyncio and the threads of Orbax log each failed task. Orbax raises the first error itself.
    is_orbax_thread = "/orbax/checkpoint/" in record.pathname and record.exc_info
    is_task = record.name == "asyncio" or is_orbax_thread
    return record.levelno >= logging.ERROR and not is_task


def _handle_unraisable(unraisable: sys.UnraisableHookArgs) -> None:
    """Print an error that cannot be raised, except those of writes after a failed checkpoint.

    TensorStore reports each write to the event loop of the checkpoint, which the first failure
    closes. A Ctrl-C that arrives in a callback, such as that of XLA for garbage collections, would
    be lost: it is repeated.
    """
    if unraisable.exc_type is KeyboardInterrupt:
        # Later, because nothing can be raised before the callback ends.
        args = (threading.main_thread().ident, signal.SIGINT)
        threading.Timer(_REPEAT_SECONDS, signal.pthread_kill, args).start()
    elif _VERBOSE.value or str(unraisable.exc_value) != "Event loop is closed":
        sys.__unraisablehook__(unraisable)
