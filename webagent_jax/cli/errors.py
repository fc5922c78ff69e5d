"""Messages and exit statuses of errors that the user can fix.

A user error prints up to three lines and exits with status 2, an interruption exits with status 130
(Ctrl-C) or 143 (SIGTERM during training), and a run that stopped itself or an infrastructure fault
with status 1. Errors of the operating system, such as a missing file, are user errors. All other
errors keep their traceback.
"""

from __future__ import annotations

import errno
import os
import re
import select
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from webagent_jax import device_memory

_MIN_PYTHON = (3, 11)
_INSTALL = "`make setup` in a checkout and use .venv/bin/python, or pip install webagent_jax"
_PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep
_NO_SPACE = os.strerror(errno.ENOSPC)
_PERMISSION_ERRORS = {errno.EACCES, errno.EPERM}  # for reading or writing

MISTAKE = 2
STOPPED = 1
INTERRUPTED = 130  # 128 and the number of SIGINT, as shells report it
PREEMPTED = 143  # 128 and the number of SIGTERM
_BROKEN_PIPE = 141  # 128 and the number of SIGPIPE


class CommandError(Exception):
    """Unknown or missing subcommand, or unsupported Python. The message says how to fix it."""


class InterruptedRunError(Exception):
    """Ctrl-C during a run. The message lists the saved results."""


def check_python() -> None:
    """Check the version of the interpreter.

    Raises:
        CommandError: it is too old.
    """
    if sys.version_info < _MIN_PYTHON:
        version = ".".join(map(str, sys.version_info[:2]))
        raise CommandError(
            f"Python 3.11 to 3.13 is needed; {sys.executable} is {version}.\nRun {_INSTALL}"
        )


@contextmanager
def exit_on_user_error(*, show_traceback: bool = False) -> Iterator[None]:
    """Exit with a message instead of a traceback on errors that the user can fix.

    Args:
        show_traceback: print the traceback above the message.
    """
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        if isinstance(error, BrokenPipeError) and _is_stdout_closed():
            # The flush at exit needs a valid descriptor.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(_BROKEN_PIPE)
        description = describe(error)
        if description is None:
            raise
        message, status = description
        if show_traceback:
            traceback.print_exception(error)
        sys.stderr.write(f"error: {message}\n")
        if status == INTERRUPTED:
            # XLA may still compile in other threads, which crash or block the exit of Python.
            sys.stdout.flush()
            os._exit(status)
        sys.exit(status)


def describe(error: BaseException) -> tuple[str, int] | None:
    """Return message and exit status of an error; None if the user cannot fix it."""
    if isinstance(error, KeyboardInterrupt | InterruptedRunError):
        return str(error) or "interrupted", INTERRUPTED
    if isinstance(error, CommandError):
        return str(error), MISTAKE
    # A full disk raises errors of many types: Orbax and TensorStore have their own.
    if any(_NO_SPACE in str(cause) for cause in _causes(error)):
        return (
            f"{_NO_SPACE.lower()}: free disk space, then run the same command to continue.\n"
            "Finished episodes and checkpoints are complete; the file being written is not used."
        ), MISTAKE
    if any(map(device_memory.is_exhausted, _causes(error))):
        return (
            "out of device memory. Lower engine.slots, engine.kv_cache_mib or "
            "mesh.microbatch_rows_per_device, or use more devices;\n"
            "`webagent compile-check` computes the memory of a run."
        ), MISTAKE
    if isinstance(error, ModuleNotFoundError) and not (error.name or "").startswith("webagent_jax"):
        return _describe_missing_module(error), MISTAKE
    if isinstance(error, SyntaxError) and not (error.filename or _PACKAGE).startswith(_PACKAGE):
        return f"{error.filename}, line {error.lineno}: {error.msg}", MISTAKE
    return _describe_package_error(error) or _describe_os_error(error)


def _describe_missing_module(error: ModuleNotFoundError) -> str:
    """Return a message that depends on the file with the import: a library's, or a user's."""
    frames = traceback.extract_tb(error.__traceback__)
    files = [frame.filename for frame in frames if not frame.filename.startswith("<frozen ")]
    if not files or files[-1].startswith(_PACKAGE) or "site-packages" in files[-1]:
        return f"{sys.executable} has no package {error.name}.\nRun {_INSTALL}"
    return (
        f"{files[-1]} imports {error.name}, which is neither in {os.getcwd()} nor installed:\n"
        "run webagent in the folder that contains it, or install it"
    )


def _describe_package_error(error: BaseException) -> tuple[str, int] | None:
    """Return message and status of an error class of this package or of absl."""
    # Imported here: without their packages, the errors above must still have a message.
    from absl import flags

    from webagent_jax.config import ConfigError, PreemptedError, RunStoppedError
    from webagent_jax.types import InfraError

    if isinstance(error, flags.Error):
        return _describe_flag_error(error), MISTAKE
    if isinstance(error, ConfigError):
        return str(error), MISTAKE
    if isinstance(error, AttributeError) and error.name == "get_config":
        return "the config file defines no get_config(): name the file that does", MISTAKE
    if isinstance(error, PreemptedError):
        return str(error), PREEMPTED
    if isinstance(error, RunStoppedError | InfraError):
        return str(error), STOPPED
    browser = sys.modules.get("webagent_jax.browser")
    # Without the module there is no such error; its import is slow.
    if browser is not None and isinstance(error, browser.ChromiumMissingError):
        return str(error), MISTAKE
    return None


def _describe_flag_error(error: Exception) -> str:
    """Return the message of an error of absl or ml_collections."""
    from webagent_jax.config import ConfigError

    causes = list(_causes(error))
    # Errors of config files arrive as text with a traceback; the innermost has the message.
    for cause in reversed(causes):
        if isinstance(cause, ConfigError):
            return str(cause)
    message = str(error)
    # Before the check for several lines: each missing flag has a line.
    if missing := _describe_missing_flags(message):
        return missing
    if "\n" in message:
        if str(causes[-1]).startswith("get_config() takes 0 positional arguments"):
            return (
                "the config file has no variants: remove the colon and the name after it, or "
                "define get_config(variant)"
            )
        return f"the config file fails: {type(causes[-1]).__name__}: {causes[-1]}"
    if match := re.match(r"flag --config\.(\S+?)=", message):
        return f"{message.removeprefix('flag ')}; `webagent options {match[1]}` describes it"
    return message


def _describe_missing_flags(message: str) -> str:
    """Return the message for absl's message of missing flags; empty for another one."""
    alternatives = re.findall(r"Exactly one of \((.+?)\) must have a value", message)
    parts = [f"set exactly one of --{names.replace(', ', ', --')}" for names in alternatives]
    if missing := re.findall(r"Flag (--\S+) must have a value", message):
        parts.append(f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing")
    return "; ".join([*parts, "--help describes the options"]) if parts else ""


def _describe_os_error(error: BaseException) -> tuple[str, int] | None:
    if not isinstance(error, OSError):
        return None
    if error.errno in _PERMISSION_ERRORS and error.filename is not None:
        return (
            f"no permission for {error.filename}: {error.strerror}; change its permissions, or use "
            "another folder"
        ), MISTAKE
    if error.errno == errno.EROFS and error.filename is not None:
        return f"cannot write {error.filename}: {error.strerror}; use another folder", MISTAKE
    if error.errno == errno.EADDRINUSE:
        return f"{error.strerror}; use another --port", MISTAKE
    if error.filename is not None:
        return f"{error.filename}: {error.strerror}", MISTAKE
    return str(error), MISTAKE


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and the chain of errors that caused it."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


def _is_stdout_closed() -> bool:
    """Return whether stdout is a pipe without a reader; other pipes break too."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))
