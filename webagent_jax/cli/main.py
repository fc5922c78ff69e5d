"""Entry point of the console command `webagent` and of the files in launch/.

It imports only the standard library, so that help is fast and a missing package leads to a readable
message.
"""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Sequence

import webagent_jax
from webagent_jax import huge_pages
from webagent_jax.cli import errors

# Module webagent_jax/commands/NAME.py, with underscores for spaces and hyphens.
COMMANDS = {
    "quickstart": "run BC, M-GRPO and their evaluations",
    "train bc": "train by behavior cloning; resumes from its workdir",
    "train grpo": "train by multi-turn GRPO; resumes from its workdir",
    "evaluate": "measure the success rate of a policy",
    "collect": "collect demonstrations from experts, a policy or a chat endpoint",
    "relabel": "turn failed episodes on the arena into demonstrations of other tasks",
    "record": "record demonstrations by hand in a visible browser",
    "report": "rebuild report.html of a run",
    "view": "serve a page with all runs of a directory, updated live",
    "compare": "compare evaluations in a table and a chart",
    "rescore": "score stored episodes under other labels of WebArena",
    "doctor": "check the requirements of a run",
    "options": "list the options of a config",
    "list-tasks": "list the tasks of a suite",
    "show-observation": "print the observation of a page",
    "serve-arena": "serve the sites of the arena for manual use",
    "serve-env": "serve the environments of a suite with OpenEnv's protocol",
    "import weights": "import a Hugging Face directory or a GGUF file",
    "import demos": "write demonstrations from WebRL, successful episodes, or other workdirs",
    "export": "export a checkpoint as a Hugging Face directory or a PEFT adapter",
    "compile-check": "compile the programs of a run for TPUs or GPUs",
    "pretrain-tiny": "pretrain webagent-tiny from random params",
}
"""Summary of each subcommand."""

_HELP_FLAGS = {"--help", "-h"}


def main(argv: Sequence[str] | None = None) -> None:
    """Run a subcommand and exit.

    Args:
        argv: subcommand and its options; None for those of the process, which then restarts with
            huge pages (`huge_pages`).
    """
    # Python sets streams that the caller has closed to None.
    sys.stdout = sys.stdout or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    sys.stderr = sys.stderr or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    args = list(sys.argv[1:] if argv is None else argv)
    with errors.exit_on_user_error(show_traceback="--traceback" in args):
        errors.check_python()
        if args == ["--version"]:
            _write(f"webagent {webagent_jax.__version__}\n")
            return
        command, options = _split(args)
        if command is None:
            _write(_overview(args))
            return
        needs_help = bool(_HELP_FLAGS & set(options))
        # A caller that passes `argv` has its own program, which a restart would repeat.
        if argv is None and not needs_help:
            huge_pages.restart_with_huge_pages()
        from webagent_jax.cli import run

        if needs_help:
            _write(run.help_text(command))
        else:
            run.run(command, options)


def _write(text: str) -> None:
    sys.stdout.write(text)
    # A closed pipe is handled here; at exit it would print an error.
    sys.stdout.flush()


def _split(args: Sequence[str]) -> tuple[str | None, list[str]]:
    """Return subcommand and options; None for the overview."""
    if command := _leading_command(args):
        return command, list(args[len(command.split()) :])
    words = [arg for arg in args if not arg.startswith("-")]
    if not words and _HELP_FLAGS & set(args):
        return None, []
    if not words:
        raise errors.CommandError("webagent needs a command; `webagent --help` lists them")
    if command := _leading_command(words):
        raise errors.CommandError(f"options follow the command: webagent {command} {args[0]} ...")
    group = [command for command in COMMANDS if command.startswith(f"{words[0]} ")]
    if group and _HELP_FLAGS & set(args):
        return None, []
    if group:
        raise errors.CommandError(f"webagent {words[0]} needs one of: {', '.join(group)}")
    suggestions = difflib.get_close_matches(" ".join(words[:2]), COMMANDS) or (
        difflib.get_close_matches(words[0], COMMANDS)
    )
    hint = f"did you mean {' or '.join(suggestions)}?" if suggestions else ""
    raise errors.CommandError(
        f"unknown command {words[0]!r}; {hint or '`webagent --help` lists them'}"
    )


def _leading_command(words: Sequence[str]) -> str:
    """Return the subcommand at the start of the words; empty if there is none."""
    candidates = (" ".join(words[:num_words]) for num_words in (2, 1))
    return next((name for name in candidates if name in COMMANDS), "")


def _overview(args: Sequence[str]) -> str:
    """Return the table of the commands, or of those that begin with the first argument."""
    width = max(map(len, COMMANDS))
    prefix = next((f"{arg} " for arg in args if not arg.startswith("-")), "")
    rows = [
        f"  {command:<{width}}  {summary}"
        for command, summary in COMMANDS.items()
        if command.startswith(prefix)
    ]
    return "\n".join(
        [
            "usage: webagent COMMAND [options]",
            "",
            "Train and evaluate web agents with BC and multi-turn GRPO in JAX.",
            "",
            *rows,
            "",
            "`webagent COMMAND --help` describes a command.",
            "",
        ]
    )
