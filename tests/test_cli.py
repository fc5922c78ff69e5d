"""Tests of the console command: help, options, errors and exit statuses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from webagent_jax.browser import ChromiumMissing
from webagent_jax.cli import errors, run_config
from webagent_jax.cli.main import COMMANDS
from webagent_jax.commands import options
from webagent_jax.config import ConfigError
from webagent_jax.config_options import check_path
from webagent_jax.learn import NonFiniteStepError
from webagent_jax.train.metrics import GuardTripped
from webagent_jax.types import InfraError

ROOT = Path(__file__).parents[1]
HEAVY_MODULES = {
    *("flax", "jax", "matplotlib", "optax", "orbax", "playwright", "starlette"),
    *("tensorflow_datasets", "transformers", "uvicorn"),
}


def run_python(*args: str, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, *args],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


# --- help -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["", "train", *COMMANDS])
def test_help_imports_no_heavy_module(command):
    script = (
        "import sys\nfrom webagent_jax.cli.main import main\n"
        f"main([*{command.split()!r}, '--help'])\n"
        f"print(*sorted({HEAVY_MODULES!r} & set(sys.modules)), file=sys.stderr)"
    )
    result = run_python("-c", script)
    assert (result.returncode, result.stderr) == (0, "\n")
    assert result.stdout.startswith("usage: webagent ")


def test_help_lists_flags_of_command_and_job():
    text = run_python("-m", "webagent_jax", "train", "grpo", "--help").stdout
    flags = ("--config", "--workdir", "--distributed", "--verbose", "--traceback")
    assert all(f"  {flag}" in text for flag in flags)
    assert "--port" not in text
    assert max(map(len, text.splitlines())) <= 100


def test_every_launcher_runs_a_command():
    for file in (ROOT / "launch").glob("*.py"):
        if file.name != "benchmark.py":
            (command,) = [c for c in COMMANDS if f"`webagent {c}`" in file.read_text()]
            words = ", ".join(f'"{word}"' for word in command.split())
            assert f"main([{words}, *sys.argv[1:]])" in file.read_text()


# --- configs and options --------------------------------------------------------------------------


def test_config_has_name_and_path(tmp_path, monkeypatch):
    path = run_config.find_config("configs/arena.py:smollm2")
    name = run_config.find_config("arena:smollm2")
    assert path == "configs/arena.py:smollm2"
    assert Path(name.partition(":")[0]).samefile("configs/arena.py") and name.endswith(":smollm2")
    monkeypatch.chdir(tmp_path)
    assert run_config.find_config("arena:smollm2") == name
    with pytest.raises(ConfigError, match="did you mean --config=arena:smollm2"):
        run_config.find_config("configs/arena.py:smollm2")


def test_config_flag_precedes_overrides():
    argv = run_config.with_config_path(
        ["x", "--config.seed=3", "--config", "quickstart:smoke", "--y"]
    )
    config_flag, *others = argv[1:]
    assert config_flag.endswith("quickstart.py:smoke") and config_flag.startswith("--config=")
    assert others == ["--config.seed=3", "--y"]


@pytest.mark.parametrize(
    ("path", "suggestion"),
    [
        ("grpo.updats", "did you mean --config.grpo.updates?"),
        ("grp.updates", "did you mean --config.grpo.updates?"),
        ("temperature", "did you mean --config.rollout.temperature or --config.eval.temperature?"),
        ("nothing.like.it", "`webagent options` lists all"),
    ],
)
def test_unknown_option_has_suggestion(path, suggestion):
    with pytest.raises(ConfigError) as error:
        check_path(path)
    assert str(error.value) == f"unknown option --config.{path}; {suggestion}"
    check_path("grpo.updates")
    check_path("grpo.optimizer")


def test_options_page_is_current():
    page = (ROOT / "docs" / "options.md").read_text("utf-8")
    assert page == options.markdown(), "run: webagent options --markdown > docs/options.md"
    assert "| `grpo.group_size` | int | `8` | number of episodes per group |" in page


def test_every_option_has_type_and_comment():
    # A field without a comment of its own has that of the field above it.
    listed = options.all_options()
    assert len(listed) > 150 and all(option.type and option.comment for option in listed)


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ChromiumMissing, errors.MISTAKE),
        (ConfigError, errors.MISTAKE),
        (GuardTripped, errors.STOPPED),
        (InfraError, errors.STOPPED),
        (NonFiniteStepError, errors.STOPPED),
    ],
)
def test_user_error_exits_with_message(error, status, capsys):
    with pytest.raises(SystemExit) as exit_info, errors.exit_on_user_error():
        raise error("raise the limit")
    assert exit_info.value.code == status
    assert capsys.readouterr().err == "error: raise the limit\n"


def test_other_error_keeps_traceback():
    with pytest.raises(KeyError), errors.exit_on_user_error():
        raise KeyError("x")
