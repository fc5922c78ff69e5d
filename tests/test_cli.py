"""Tests of the console command: help, options, errors and exit statuses."""

from __future__ import annotations

import ast
import errno
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest

import webagent_jax
from configs import quickstart as quickstart_config
from webagent_jax import distributed
from webagent_jax.browser import ChromiumMissingError
from webagent_jax.cli import errors, run_config
from webagent_jax.cli.main import COMMANDS
from webagent_jax.commands import options
from webagent_jax.config import ConfigError, OptimizerConfig
from webagent_jax.config_options import option_type
from webagent_jax.learn import NonFiniteStepError
from webagent_jax.tracking import run_metadata
from webagent_jax.tracking.metric_writers import read_metrics
from webagent_jax.tracking.workdir_lock import hold_lock
from webagent_jax.train.metrics import GuardLimitError
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


def test_version_is_that_of_the_package():
    assert run_command("--version").stdout == f"webagent {webagent_jax.__version__}\n"


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
            assert f"sys.argv[1:1] = [{words}]\n    main()" in file.read_text()


def test_main_with_arguments_does_not_restart_its_caller():
    script = (
        "print('caller', flush=True)\nfrom webagent_jax.cli.main import main\n"
        "main(['options', 'grpo.updates'])"
    )
    result = run_python("-c", script, GLIBC_TUNABLES="", LD_PRELOAD="")
    assert (result.returncode, result.stdout.count("caller")) == (0, 1)


# --- launch/benchmark.py -------------------------------------------------------------------------


def test_benchmark_restarts_before_heavy_imports():
    script = (
        "import runpy, sys\nfrom webagent_jax import huge_pages\n"
        f"stop = lambda: sys.exit(' '.join({HEAVY_MODULES!r} & set(sys.modules)) or 0)\n"
        "huge_pages.restart_with_huge_pages = stop\n"
        "runpy.run_path('launch/benchmark.py', run_name='__main__')"
    )
    result = run_python("-c", script)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("--benchmark=updat", "--benchmark=updat: value should be one of <"),
        ("--benchmark=update x", "unexpected arguments: x"),
    ],
)
def test_wrong_benchmark_option_exits_with_message(args, message):
    assert_mistake(run_python("launch/benchmark.py", *args.split()), message)


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
    ("text", "tasks"),
    [
        ("map/list-in-town,map/phone", ("map/list-in-town", "map/phone")),
        ("map=a.example:80,map=b.example:90", ("map=a.example:80", "map=b.example:90")),
        ("44, 81", ("44", "81")),
        ("gmail", ("gmail",)),
        ("", ()),
        ("'a','b'", ("a", "b")),
        ("()", ()),
    ],
)
def test_list_of_strings_needs_no_quotes(text, tasks):
    argv = run_config.with_config_path(["x", f"--config.suite.tasks={text}"])
    flag, _, literal = argv[2].partition("=")
    assert flag == "--config.suite.tasks"
    assert ast.literal_eval(literal) == tasks  # as ml_collections does


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
        option_type(path)
    assert str(error.value) == f"unknown option --config.{path}; {suggestion}"
    assert option_type("grpo.updates") is int
    assert option_type("grpo.optimizer") is OptimizerConfig


def test_options_page_is_current():
    page = (ROOT / "docs" / "options.md").read_text("utf-8")
    assert page == options.markdown(), "run: webagent options --markdown > docs/options.md"
    assert "| `grpo.group_size` | int | `8` | Number of episodes per group |" in page


def test_every_option_has_type_and_comment():
    # A field without a comment of its own has that of the field above it.
    listed = options.all_options()
    assert len(listed) > 100 and all(option.type and option.comment for option in listed)


def test_options_show_values_of_config():
    config = (
        "--config=miniwob:short_grpo",
        "--config.grpo.updates=3",
        "--config.eval.temperature=0",
    )
    lines = run_command("options", *config).stdout.splitlines()
    assert "grpo.updates=3  (default: 40)" in lines
    assert "eval.temperature=0.0" in lines
    assert any(
        line.startswith("suite.tasks=") and line.endswith("(default: empty)") for line in lines
    )
    heads = [line for line in lines if not line.startswith(" ")]
    assert run_command("options", "policy.unroll", "--changed").stdout == ""
    changed = run_command("options", *config, "--changed", "suite.tasks").stdout.splitlines()
    assert [line for line in changed if not line.startswith(" ")] == [
        line for line in heads if line.startswith("suite.tasks=")
    ]


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ChromiumMissingError, errors.MISTAKE),
        (ConfigError, errors.MISTAKE),
        (GuardLimitError, errors.STOPPED),
        (InfraError, errors.STOPPED),
        (NonFiniteStepError, errors.STOPPED),
    ],
)
def test_user_error_exits_with_message(error, status, capsys):
    with pytest.raises(SystemExit) as exit_info, errors.exit_on_user_error():
        raise error("raise the limit")
    assert exit_info.value.code == status
    assert capsys.readouterr().err == "error: raise the limit\n"


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (errno.EACCES, "no permission for key.txt: Permission denied; change its permissions, or"),
        (errno.EPERM, "no permission for key.txt: Operation not permitted; change its permissions"),
        (errno.EROFS, "cannot write key.txt: Read-only file system; use another folder"),
    ],
)
def test_permission_error_fits_files_to_read_and_to_write(number, message):
    text, status = errors.describe(OSError(number, os.strerror(number), "key.txt"))
    assert text.startswith(message) and text.endswith("use another folder")
    assert status == errors.MISTAKE


def test_too_little_device_memory_names_options(monkeypatch):
    with pytest.raises(jax.errors.JaxRuntimeError, match="RESOURCE_EXHAUSTED") as error_info:
        jnp.zeros(1 << 50)
    engine_error = RuntimeError("the inference engine failed")
    engine_error.__cause__ = error_info.value
    for error in (error_info.value, engine_error):
        text, status = errors.describe(error)
        assert "engine.slots" in text and "compile-check" in text
        assert status == errors.MISTAKE
    # In a job it is no failure of another process.
    monkeypatch.setattr(jax.distributed, "initialize", lambda **options: None)
    monkeypatch.setattr(distributed, "_DISTRIBUTED", SimpleNamespace(value=True))
    monkeypatch.setattr(distributed, "_COORDINATOR_ADDRESS", SimpleNamespace(value=""))
    with pytest.raises(jax.errors.JaxRuntimeError), distributed.initialized():
        raise error_info.value


def test_other_error_keeps_traceback():
    with pytest.raises(KeyError), errors.exit_on_user_error():
        raise KeyError("x")


def test_logs_of_libraries_need_verbose(tmp_path):
    (tmp_path / "log.jsonl").write_text("{}\n{")  # this package warns about a half-written line
    for verbose in (False, True):
        script = (
            "import logging, pathlib\n"
            "from webagent_jax.cli import run\n"
            "from webagent_jax.tracking import atomic_files\n"
            "run.absl_logging.use_absl_handler()\n"
            f"run.configure_logging(verbose={verbose})\n"
            "logging.getLogger('orbax').warning('of a library')\n"
            "logging.getLogger('orbax').error('an error')\n"
            "logging.getLogger('asyncio').error('a failed task of a library')\n"
            f"list(atomic_files.read_jsonl(pathlib.Path({str(tmp_path / 'log.jsonl')!r})))"
        )
        output = run_python("-c", script).stderr
        assert "half-written" in output and "an error" in output
        assert ("of a library" in output) is verbose


# --- mistakes, in processes of their own ----------------------------------------------------------


def run_command(*args: str, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess:
    return run_python("-m", "webagent_jax", *args, cwd=cwd, **environment)


def assert_mistake(result: subprocess.CompletedProcess, message: str) -> None:
    assert result.returncode == errors.MISTAKE, result
    assert message in result.stderr
    assert result.stderr.startswith("error: ") and "Traceback" not in result.stderr
    assert len(result.stderr.splitlines()) <= 3


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("", "`webagent --help` lists them"),
        ("evalute", "did you mean evaluate?"),
        ("train", "needs one of: train bc, train grpo"),
        ("--verbose train bc", "options follow the command: webagent train bc --verbose"),
        ("train bc extra", "unexpected arguments: extra"),
        ("train bc", "--workdir is missing: set --workdir=DIR"),
        ("train bc --workdri=x", "Did you mean: workdir"),
        ("train bc --workdir=x --config=quikstart", "did you mean --config=quickstart?"),
        ("train bc --workdir=x --config=configs/quikstart.py", "did you mean --config=quickstart?"),
        ("train bc --workdir=x --config=quickstart:smoks", "'smoks'; available: smoke, cot, paper"),
        (
            "train bc --workdir=x --config=examples/my_site/config.py:smoke",
            "the config file has no variants: remove",
        ),
        ("train bc --workdir=x --config.grpo.updats=3", "did you mean --config.grpo.updates?"),
        ("train bc --workdir=x --grpo.updates=3", "did you mean --config.grpo.updates?"),
        ("train bc --workdir=x --grpo.updats=3", "did you mean --config.grpo.updates?"),
        ("train bc --workdir=x --config.grpo.updates=y", "`webagent options grpo.updates` desc"),
        ("train bc --workdir=x --config.suite.name=wob", "is not one of: miniwob, arena"),
        ("train bc --workdir=x --config.grpo.group_size=1", "must be at least 2"),
        ("train grpo --workdir=x --distributed", "found no job of Slurm, GKE or a TPU pod"),
        (
            "train grpo --workdir=x --coordinator_address=host --num_processes=2 --process_id=0",
            "--coordinator_address=host must be HOST:PORT",
        ),
        ("export --input=x", "--output_dir is missing"),
        ("export", "error: --input and --output_dir are missing"),
        ("import weights", "error: set exactly one of --input, --gguf; --output_dir is missing"),
        ("list-tasks --config.suite.tasks=click-tabb", "did you mean: click-tab"),
        ("list-tasks --suite=browsergym", "set --config.suite.name=browsergym instead"),
        ("export --input=configs --output_dir=x --update=3", "configs contains no checkpoints/"),
        ("compare x --output_dir=y", "x contains no evaluation"),
        ("options nothing-like-it", "no option matches"),
        ("pretrain-tiny --output_dir=x --seed=-1", "--seed=-1: "),
    ],
)
def test_wrong_command_line_exits_with_message(args, message):
    assert_mistake(run_command(*args.split()), message)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "def get_config():\n    raise ValueError('no site')\n",
            "the config file fails: ValueError: no site",
        ),
        ("CONFIG = 1\n", "the config file defines no get_config()"),
        ("def get_config(:\n", "own.py, line 1: invalid syntax"),
        (
            "def get_config():\n    return {'seed': 3}\n",
            "returns a dict: return webagent_jax.config.RunConfig(...)",
        ),
        (
            "def get_config():\n    return open('missing.json').read()\n",
            "the config file fails: [Errno 2] No such file or directory: 'missing.json'",
        ),
    ],
)
@pytest.mark.parametrize("overrides", [(), ("--config.seed=4",)])
def test_failing_config_file_is_a_mistake(tmp_path, source, message, overrides):
    config = tmp_path / "own.py"
    config.write_text(source)
    assert_mistake(run_command("options", f"--config={config}", *overrides), message)


@pytest.mark.parametrize("value", ["RunConfig(seed=91)", "to_config_dict(RunConfig(seed=91))"])
def test_config_file_returns_dataclass_or_config_dict(tmp_path, value):
    file = tmp_path / "own.py"
    file.write_text(
        "from webagent_jax.config import RunConfig, to_config_dict\n"
        f"def get_config():\n    return {value}\n"
    )
    result = run_command("options", f"--config={file}", "--config.bc.epochs=7", "--changed")
    assert "bc.epochs=7" in result.stdout and "seed=91" in result.stdout


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ((), "interrupted"),
        (("config.json",), "contains no results yet."),
        (("demo_episodes/a.jsonl",), "contains the finished demonstrations."),
        (
            ("config.json", "checkpoints/2/x", "demos/webagent_demos/1.1.0/features.json"),
            "contains checkpoints/2, the finished demonstrations.",
        ),
    ],
)
def test_interruption_lists_saved_results(tmp_path, files, message):
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    script = (
        "from absl import flags\nfrom webagent_jax.cli import run, workdir\n"
        f"flags.FLAGS(['test', '--workdir={tmp_path}'])\nprint(run._interruption())"
    )
    assert message in run_python("-c", script).stdout.splitlines()[0]


def test_interruption_skips_exit_of_interpreter():
    # Threads that compile may crash or block it.
    script = (
        "import atexit\nfrom webagent_jax.cli.errors import exit_on_user_error\n"
        "atexit.register(print, 'exit of the interpreter')\nprint('before')\n"
        "with exit_on_user_error(): raise KeyboardInterrupt"
    )
    result = run_python("-c", script)
    assert (result.returncode, result.stdout) == (errors.INTERRUPTED, "before\n")
    assert result.stderr == "error: interrupted\n"


def test_interruption_of_a_callback_is_repeated():
    script = (
        "import gc, signal, time\nfrom absl import flags\nfrom webagent_jax.cli import run\n"
        # Shells ignore SIGINT in background jobs.
        "signal.signal(2, signal.default_int_handler)\n"
        "flags.FLAGS(['test'])\nrun.configure_logging(verbose=False)\n"
        "gc.callbacks.append(lambda *_: gc.callbacks.clear() or signal.raise_signal(2))\n"
        "gc.collect()\n"
        "try: time.sleep(20)\nexcept KeyboardInterrupt: print('interrupted')"
    )
    result = run_python("-c", script)
    assert (result.stdout, result.stderr) == ("interrupted\n", "")


def test_traceback_option_shows_traceback():
    result = run_command("train", "bc", "--traceback")
    assert result.returncode == errors.MISTAKE
    assert result.stderr.startswith("Traceback")
    assert result.stderr.splitlines()[-1].startswith("error: --workdir is missing")


def test_config_file_imports_modules_of_current_folder(tmp_path):
    (tmp_path / "my_config.py").write_text(
        "from my_options import SEED\n"
        "from webagent_jax.config import RunConfig\n"
        "def get_config():\n"
        "    return RunConfig(seed=SEED)\n"
    )
    args = ("from webagent_jax.cli.main import main; main()", "options", "seed")
    # As in the console script, the current folder is not in the path.
    config_flag = f"--config={tmp_path / 'my_config.py'}"
    result = run_python("-P", "-c", *args, config_flag, cwd=tmp_path, PYTHONPATH=str(ROOT))
    assert_mistake(result, "my_config.py imports my_options, which is neither in")
    assert "make setup" not in result.stderr
    (tmp_path / "my_options.py").write_text("SEED = 91")
    result = run_python("-P", "-c", *args, config_flag, cwd=tmp_path, PYTHONPATH=str(ROOT))
    assert "91" in result.stdout, result.stderr


def test_python_without_packages_exits_with_message():
    result = run_python("-S", "launch/train_bc.py", PYTHONPATH="")
    assert_mistake(result, "has no package absl.\nRun `make setup`")


def test_closed_pipe_ends_quietly():
    with subprocess.Popen(
        [sys.executable, "-m", "webagent_jax", "options"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(timeout=200) == 141


@pytest.mark.parametrize("args", ["options seed", "--help"])
def test_command_without_streams_succeeds(args):
    shell = f"exec {shlex.quote(sys.executable)} -m webagent_jax {args} >&- 2>&-"
    assert subprocess.run(["sh", "-c", shell], cwd=ROOT, check=False).returncode == 0


def test_port_in_use_exits_with_message():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert_mistake(run_command("serve-arena", f"--port={port}"), "use another --port")


def test_missing_browser_exits_with_message():
    result = run_command(
        "show-observation", "--url=http://127.0.0.1:1/", WEBAGENT_CHROMIUM="/no/chromium"
    )
    assert_mistake(result, "fix it with: unset WEBAGENT_CHROMIUM")


def test_incomplete_policy_exits_with_message(tmp_path):
    shutil.copy(ROOT / "webagent_jax" / "policy" / "webagent_tiny" / "config.json", tmp_path)
    result = run_command("export", f"--input={tmp_path}", f"--output_dir={tmp_path / 'out'}")
    assert_mistake(result, "copy or download all files of the policy again")


def test_workdir_of_other_command_exits_with_message(tmp_path):
    cfg = quickstart_config.get_config("smoke")
    run_metadata.init_workdir(tmp_path, cfg, "train bc")
    (tmp_path / "metrics.jsonl").write_text("")
    result = run_command("evaluate", "--config=quickstart:smoke", f"--workdir={tmp_path}")
    assert_mistake(result, "contains a run of `webagent train bc`, this is `webagent evaluate`")


@pytest.mark.parametrize("command", ["train grpo", "evaluate", "record"])
def test_command_rejects_workdir_in_use(tmp_path, command):
    with hold_lock(tmp_path):
        result = run_command(*command.split(), "--config=quickstart:smoke", f"--workdir={tmp_path}")
    assert_mistake(result, f"process {os.getpid()} writes to {tmp_path}: wait until it ends")
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


@pytest.mark.browser
def test_unusable_endpoint_exits_with_message(tmp_path):
    args = (
        *("evaluate", "--config=quickstart:smoke", f"--workdir={tmp_path}"),
        *("--config.policy.kind=openai", "--config.policy.endpoint.retries=0"),
        *("--config.policy.endpoint.model=m", "--config.prompt.template=compact"),
    )
    dead = run_command(*args, "--config.policy.endpoint.url=http://127.0.0.1:1/v1")
    assert_mistake(dead, "check that the server is running")


@pytest.mark.browser
def test_interruption_reports_saved_results_and_continues(tmp_path):
    args = ("evaluate", "--config=quickstart:smoke", f"--workdir={tmp_path}")
    log = tmp_path / "episodes" / "episodes.jsonl"
    with subprocess.Popen(
        # Tests that a shell runs in the background ignore SIGINT, and so would this process.
        ["env", "--default-signal=INT", sys.executable, "-m", "webagent_jax", *args],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        # The file exists before its first line.
        while not (log.exists() and log.read_text().endswith("\n")) and process.poll() is None:
            time.sleep(0.02)
        # As from a terminal: the signal reaches Chromium too.
        os.killpg(process.pid, signal.SIGINT)
        assert process.stderr.read() == (
            f"error: interrupted; {tmp_path} contains the finished episodes.\n"
            "The same command continues the run.\n"
        )
        assert process.wait(timeout=200) == errors.INTERRUPTED
    first_line = log.read_text().splitlines()[0]
    assert run_command(*args).returncode == 0
    assert log.read_text().splitlines()[0] == first_line
    assert json.loads((tmp_path / "eval.json").read_text())["n"] == 4


@pytest.mark.browser
@pytest.mark.parametrize(
    ("options", "num_updates"),
    [
        # One update per epoch: two demonstrations of two tasks, in batches of four.
        (("train", "bc", "--config.bc.epochs=40", "--config.bc.checkpoint_interval=100"), 40),
        (("train", "grpo", "--config.grpo.updates=3", "--config.grpo.checkpoint_interval=100"), 3),
    ],
    ids=["bc", "grpo"],
)
def test_sigterm_saves_checkpoint_of_last_update_and_run_continues(tmp_path, options, num_updates):
    args = (*options, "--config=quickstart:smoke", f"--workdir={tmp_path}")
    metrics = tmp_path / "metrics.jsonl"
    with subprocess.Popen(
        [sys.executable, "-m", "webagent_jax", *args],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        while not (metrics.exists() and metrics.read_text()) and process.poll() is None:
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        message = process.stderr.read()
        assert process.wait(timeout=200) == errors.PREEMPTED, message
    records = read_metrics(metrics)
    update = len(records)
    assert message == (
        f"error: stopped by SIGTERM after update {update}; the same command continues the run\n"
    )
    # The interval is 100 updates: the signal is the reason for this checkpoint.
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == [str(update)]
    assert run_command(*args).returncode == 0
    resumed_records = read_metrics(metrics)
    assert resumed_records[:update] == records
    # The resumed run neither repeats nor skips an update.
    assert [record["update"] for record in resumed_records] == list(range(1, num_updates + 1))
    assert (tmp_path / "policy" / "config.json").exists()
