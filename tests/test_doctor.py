"""Tests of the doctor: each check with a valid setup and with real faults."""

from __future__ import annotations

import dataclasses
import http.server
import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal

import jax
import pytest
from absl.testing import flagsaver

from tests.chat_server import Answer, ChatServer, serve_chat
from tests.launchers import load_main
from tests.suites.webarena_sites import FakeSite
from webagent_jax import config, doctor, policy, xla_flags
from webagent_jax.config import (
    BCConfig,
    BrowserConfig,
    ConfigError,
    EndpointConfig,
    EngineConfig,
    GRPOConfig,
    JudgeConfig,
    LoRAConfig,
    MeshConfig,
    PolicyConfig,
    PromptConfig,
    RolloutConfig,
    RunConfig,
    SuiteConfig,
    WebArenaConfig,
)
from webagent_jax.doctor import (
    CheckResult,
    CheckStatus,
    browser,
    devices,
    endpoints,
    machine,
    sites,
    weights,
)
from webagent_jax.policy import matmul

LONG_TIMEOUTS = BrowserConfig(call_timeout=60.0, navigation_timeout=60.0)  # for a busy machine
TASK_FILE = str(Path(__file__).parent / "suites" / "data" / "webarena_lite_test.json")

Check = Callable[[RunConfig, Path], Iterator[CheckResult]]


def run_check(check: Check, cfg: RunConfig | None = None, workdir: Path = Path("runs")) -> Any:
    """Run the check and return its results by subject."""
    return {result.subject: result for result in check(cfg or RunConfig(), workdir)}


def assert_error(result: CheckResult, problem: str, fix: str = "") -> None:
    assert result.status is CheckStatus.ERROR
    assert problem in result.description and fix in result.fix and result.fix, result
    assert "\n" not in result.description + result.fix


# --- machine --------------------------------------------------------------------------------------


def test_machine_check_passes_on_this_machine(tmp_path: Path) -> None:
    results = run_check(machine.check, workdir=tmp_path / "not" / "yet")
    assert doctor.all_passed(list(results.values()))
    assert "jax 0." in results["packages"].description and "free" in results["workdir"].description
    assert not (tmp_path / "not").exists()


def test_machine_check_reports_package_mismatch(monkeypatch: pytest.MonkeyPatch) -> None:
    requirements = ["numpy", "jax<0.1", "no-such-package>=2", "jax>99; extra == 'cuda'"]
    monkeypatch.setattr(machine, "_requirements", lambda: requirements)
    result = run_check(machine.check)["packages"]
    assert_error(result, "jax<0.1 is needed, ", "pip install")
    assert "no-such-package>=2 is missing" in result.description
    assert "numpy" not in result.description and "99" not in result.description


def test_machine_check_reports_workdir_below_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = run_check(machine.check, workdir=tmp_path / "file" / "run")["workdir"]
    assert_error(result, "Not a directory", "another --workdir")


def test_machine_check_warns_about_open_file_limit() -> None:
    result = run_check(
        machine.check, RunConfig(rollout=RolloutConfig(max_concurrent_episodes=10**9))
    )["open files"]
    assert result.status is CheckStatus.WARNING and result.fix


def test_memory_is_known_without_free_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS reports only the total number of pages."""
    names = {name: n for name, n in os.sysconf_names.items() if name != "SC_AVPHYS_PAGES"}
    sysconf = os.sysconf
    monkeypatch.setattr(os, "sysconf_names", names)
    monkeypatch.setattr(os, "sysconf", lambda name: sysconf(names[name]))
    assert machine.available_bytes() > 2**20


# --- browser --------------------------------------------------------------------------------------


@pytest.mark.browser
@pytest.mark.parametrize("worker_type", ["thread", "process"])
def test_browser_check_passes(worker_type: Literal["thread", "process"]) -> None:
    results = run_check(
        browser.check,
        RunConfig(
            browser=dataclasses.replace(LONG_TIMEOUTS, worker_type=worker_type),
            rollout=RolloutConfig(max_concurrent_episodes=2),
        ),
    )
    assert "Chrome" in results["browser"].description
    assert results["sandbox"].status is CheckStatus.OK
    assert "MiB" in results["browser memory"].description


def test_missing_browser_is_reported_by_browser_and_sites(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEBAGENT_CHROMIUM", "/no/chromium")
    result = run_check(browser.check)["browser"]
    assert_error(result, "is not a program", "unset WEBAGENT_CHROMIUM")
    assert_error(run_check(sites.check)["miniwob"], "without a browser", "the browser first")


@pytest.mark.browser
@pytest.mark.parametrize(
    ("options", "subject", "problem"),
    [
        (
            {"executable_path": "/no/such"},
            "browser",
            "browser.executable_path=/no/such is not a program",
        ),
        ({"executable_path": "/bin/false"}, "browser", "Chromium does not start"),
        ({"ws_endpoints": ("ws://127.0.0.1:1/x",)}, "browser", "ECONNREFUSED"),
        pytest.param(
            {"chromium_sandbox": True},
            "sandbox",
            "does not work as root",
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="for root"),
        ),
    ],
)
def test_browser_check_reports_start_failure(options: Any, subject: str, problem: str) -> None:
    results = run_check(browser.check, RunConfig(browser=BrowserConfig(**options)))
    assert_error(results[subject], problem)
    assert len(results) == 1


@pytest.mark.browser
def test_browser_check_reports_chromium_stderr(tmp_path: Path) -> None:
    executable = tmp_path / "chromium"
    executable.write_text("#!/bin/sh\necho chrome: libnss3.so: cannot open it >&2\nexit 127\n")
    executable.chmod(0o755)
    results = run_check(
        browser.check, RunConfig(browser=BrowserConfig(executable_path=str(executable)))
    )
    assert_error(results["browser"], "chrome: libnss3.so: cannot open it", "install --with-deps")


@pytest.mark.browser
def test_fix_of_chromium_on_path_names_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executable = tmp_path / "chromium-headless-shell"
    executable.write_text('#!/bin/sh\n[ "$1" = --version ]\n')
    executable.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.delenv("WEBAGENT_CHROMIUM", raising=False)
    result = run_check(browser.check)["browser"]
    assert_error(result, "Chromium does not start", f"{executable} on the PATH is still used, set")
    assert "WEBAGENT_CHROMIUM" in result.fix


# --- sites ----------------------------------------------------------------------------------------


@pytest.mark.browser
def test_sites_check_opens_first_task() -> None:
    cfg = RunConfig(browser=LONG_TIMEOUTS, suite=SuiteConfig(tasks=("click-test",)))
    result = run_check(sites.check, cfg)["miniwob"]
    assert result.status is CheckStatus.OK
    assert "miniwob/click-test/1000000 opened, with 1 elements" in result.description


def test_sites_check_reports_unknown_task() -> None:
    cfg = RunConfig(suite=SuiteConfig(tasks=("click-tset",)))
    assert_error(run_check(sites.check, cfg)["miniwob"], "click-tset")


def make_webarena_config(**options: Any) -> RunConfig:
    webarena_config = WebArenaConfig(test_file=TASK_FILE, sites=("gitlab",), **options)
    return RunConfig(suite=SuiteConfig(name="webarena_lite", webarena=webarena_config))


def test_sites_check_reports_each_webarena_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITLAB", raising=False)
    monkeypatch.delenv("WA_GITLAB", raising=False)
    assert_error(
        run_check(sites.check, make_webarena_config())["webarena_lite"],
        "sites without",
        "set GITLAB",
    )
    server = FakeSite("gitlab")
    monkeypatch.setenv("GITLAB", f"{server.address} http://127.0.0.1:1")
    results = [
        result
        for result in sites.check(make_webarena_config(), Path())
        if result.subject == "gitlab"
    ]
    assert [result.status for result in results] == [CheckStatus.OK, CheckStatus.ERROR]
    assert_error(results[1], "does not respond", "third_party/webarena")
    server.close()


# --- weights --------------------------------------------------------------------------------------


@pytest.fixture
def policy_dir(tmp_path: Path) -> Path:
    return shutil.copytree(policy.resolve_dir("webagent-tiny"), tmp_path / "policy")


def check_weights(path: Path | str, **options: Any) -> Any:
    return run_check(weights.check, RunConfig(policy=PolicyConfig(path=str(path)), **options))


def test_weights_check_passes_for_bundled_policy() -> None:
    results = check_weights("webagent-tiny")
    assert {result.status for result in results.values()} == {CheckStatus.OK}
    assert set(results) == {"tokenizer", "prompt", "weights", "disk"}
    assert "854,144 params, float32" in results["weights"].description
    lora_disk = check_weights("webagent-tiny", lora=LoRAConfig(rank=1))["disk"]
    assert (
        lora_disk.status is CheckStatus.OK and lora_disk.description != results["disk"].description
    )


def test_weights_check_reports_template_of_another_policy() -> None:
    results = check_weights("webagent-tiny", prompt=PromptConfig("webarena"))
    assert_error(results["prompt"], "was trained with prompt.template=compact", "=auto")


def test_weights_check_reports_empty_directory(tmp_path: Path) -> None:
    assert_error(
        check_weights(tmp_path)["weights"], f"no policy at {tmp_path}", "--config.policy.path"
    )


def test_weights_check_reports_invalid_model_config(policy_dir: Path) -> None:
    model_config = json.loads((policy_dir / "config.json").read_text())
    (policy_dir / "config.json").write_text(
        json.dumps(model_config | {"architectures": ["GPT2LMHeadModel"]})
    )
    assert_error(
        check_weights(policy_dir)["weights"], "GPT2LMHeadModel", "supported: LlamaForCausalLM"
    )
    model_config.pop("hidden_size")
    (policy_dir / "config.json").write_text(json.dumps(model_config))
    assert_error(check_weights(policy_dir)["weights"], "has no field 'hidden_size'")


def test_weights_check_reports_missing_tensors(policy_dir: Path) -> None:
    (file,) = policy_dir.glob("*.safetensors")
    file.write_bytes(file.read_bytes()[:-1])
    assert_error(check_weights(policy_dir)["weights"], f"{file} cannot be read", "again")
    file.unlink()
    assert_error(check_weights(policy_dir)["weights"], "tensors are missing", "again")
    index = {"weight_map": {"model.norm.weight": "model-00002-of-00002.safetensors"}}
    (policy_dir / "model.safetensors.index.json").write_text(json.dumps(index))
    assert_error(
        check_weights(policy_dir)["weights"], "missing", "download model-00002-of-00002.safetensors"
    )
    (policy_dir / "model.safetensors.index.json").write_text("{")
    assert_error(check_weights(policy_dir)["weights"], "missing", "fetch the complete directory")


def test_weights_check_reports_pickled_weights(policy_dir: Path) -> None:
    (file,) = policy_dir.glob("*.safetensors")
    file.rename(policy_dir / "pytorch_model.bin")
    fix = "save the weights, which are in pytorch_model.bin, as safetensors"
    assert_error(check_weights(policy_dir)["weights"], "tensors are missing", fix)
    with pytest.raises(ConfigError, match=fix):
        policy.load_hf(policy_dir)


def test_weights_check_reports_template_without_system_message(policy_dir: Path) -> None:
    (policy_dir / "chat_template.jinja").write_text("{{ raise_exception('No system role') }}")
    assert_error(
        check_weights(policy_dir)["tokenizer"], "No system role", "edit it, or use a model"
    )


def test_weights_check_reports_tokenizer_larger_than_vocabulary(policy_dir: Path) -> None:
    model_config = json.loads((policy_dir / "config.json").read_text())
    (policy_dir / "config.json").write_text(json.dumps(model_config | {"vocab_size": 1024}))
    fix = "copy tokenizer and weights of the same model"
    assert_error(check_weights(policy_dir)["tokenizer"], "has vocab_size=1024", fix)


def test_weights_check_reports_missing_tokenizer(policy_dir: Path) -> None:
    (policy_dir / "tokenizer.json").unlink()
    results = check_weights(policy_dir)
    assert_error(results["tokenizer"], "no tokenizer.json", "fast tokenizer")
    assert results["weights"].status is CheckStatus.OK


# --- devices --------------------------------------------------------------------------------------


def test_devices_check_passes_on_cpu() -> None:
    results = run_check(devices.check)
    assert {result.status for result in results.values()} == {CheckStatus.OK}
    assert "(cpu)" in results["devices"].description and results["attention"].description == "cpu"
    assert "tensor 1" in results["mesh"].description


@pytest.mark.parametrize(
    ("options", "subject", "problem"),
    [
        ({"mesh": MeshConfig(data=64, fsdp=1)}, "mesh", "does not cover"),
        ({"policy": PolicyConfig(attention="tpu")}, "attention", "does not run on backend 'cpu'"),
        (
            {"engine": EngineConfig(tensor_parallel_size=64)},
            "engine",
            "engine.tensor_parallel_size=64 is more than the",
        ),
        ({"engine": EngineConfig(kv_cache_mib=10**8)}, "engine", "of keys and values, of "),
        ({"engine": EngineConfig(max_model_len=10**6)}, "engine", "exceeds the context length"),
    ],
)
def test_devices_check_reports_invalid_options(options: Any, subject: str, problem: str) -> None:
    cfg = RunConfig(bc=BCConfig(row_tokens=10**6), grpo=GRPOConfig(row_tokens=10**6), **options)
    assert_error(run_check(devices.check, cfg)[subject], problem)


def test_devices_check_reports_missing_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matmul, "is_supported", lambda: False)
    cfg = RunConfig(policy=PolicyConfig(matmul_dtype="bfloat16"))
    assert_error(run_check(devices.check, cfg)["matmul"], "this CPU cannot compute")


def test_devices_check_reports_idle_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    model = policy.load_config("webagent-tiny")
    monkeypatch.setattr(jax, "local_devices", lambda: jax.devices() * 8)
    assert "engine devices" not in [
        f.subject for f in devices._check_engine(RunConfig(), model, 2**33)
    ]
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    result, *_ = devices._check_engine(RunConfig(), model, 2**33)
    assert result.status is CheckStatus.WARNING and "7 of 8 devices" in result.description
    # The four heads of the policy divide over at most four devices.
    assert "--config.engine.tensor_parallel_size=4" in result.fix
    cfg = RunConfig(engine=EngineConfig(tensor_parallel_size=4))
    result, *_ = devices._check_engine(cfg, model, 2**33)
    assert result.subject == "engine"


def test_devices_check_counts_replicated_kv_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "local_devices", lambda: jax.devices() * 4)
    model = policy.load_config("webagent-tiny")
    assert model.num_kv_heads == 2
    # Two key-value heads divide over two devices; four devices store both.
    for num_devices, gib in ((2, 0.5), (4, 1.0)):
        engine = EngineConfig(tensor_parallel_size=num_devices, kv_cache_mib=1024)
        *_, result = devices._check_engine(RunConfig(engine=engine), model, 2**33)
        assert f"{gib:.1f} GiB of keys and values" in result.description


def test_devices_check_reports_engine_that_cannot_be_sharded(
    policy_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jax, "local_devices", lambda: jax.devices() * 8)
    model = policy.load_config("webagent-tiny")
    cfg = RunConfig(engine=EngineConfig(tensor_parallel_size=3))
    (result,) = devices._check_engine(cfg, model, 2**33)
    assert_error(result, "engine.tensor_parallel_size=3: ", "to one of: 1, 2, 4")
    # The heads divide over 4 devices, the vocabulary over 2.
    odd_vocabulary = dataclasses.replace(model, vocab_size=2046)
    cfg = RunConfig(engine=EngineConfig(tensor_parallel_size=4))
    (result,) = devices._check_engine(cfg, odd_vocabulary, 2**33)
    assert_error(result, "embed: axis 'vocab' of 2046 does not divide by 4", "one of: 1, 2")
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    result, *_ = devices._check_engine(RunConfig(), odd_vocabulary, 2**33)
    assert result.status is CheckStatus.WARNING
    assert "--config.engine.tensor_parallel_size=2 " in result.fix


def test_unsupported_model_is_reported_by_weights_only(policy_dir: Path) -> None:
    file = policy_dir / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"hidden_act": "gelu"}))
    cfg = RunConfig(policy=PolicyConfig(path=str(policy_dir)))
    assert_error(run_check(weights.check, cfg)["weights"], "hidden_act='gelu' is not supported")
    assert set(run_check(devices.check, cfg)) == {"devices", "CPU results"}


def test_devices_check_reports_wrong_cpu_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failure with a newer jaxlib means that `xla_flags` may not be needed for it."""
    monkeypatch.setenv("XLA_FLAGS", f"{xla_flags.YNN_FUSION}=+reduce")  # what XLA does by default
    results = doctor.run_checks(RunConfig(), tmp_path, checks=("devices",))
    (result,) = [result for result in results if result.subject == "CPU results"]
    assert_error(result, "instead of (1073741824.0, 3600.0)", xla_flags.DISABLE_YNN_REDUCE)


def test_devices_check_reports_insufficient_memory(policy_dir: Path) -> None:
    model_config = json.loads((policy_dir / "config.json").read_text())
    model_config |= {"hidden_size": 65_536, "num_hidden_layers": 100, "intermediate_size": 262_144}
    (policy_dir / "config.json").write_text(json.dumps(model_config))
    cfg = RunConfig(policy=PolicyConfig(path=str(policy_dir)), grpo=GRPOConfig(kl_beta=0.0))
    results = run_check(devices.check, cfg)
    assert results["training memory"].status is CheckStatus.WARNING
    assert_error(results["engine"], "of params", "lower --config.engine.slots")


def test_devices_check_warns_about_memory_of_loading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "local_devices", lambda: jax.devices() * 2)
    model = policy.load_config("webagent-tiny", dtype="bfloat16")
    # Enough for params in bfloat16 and the cache, but not beside the params in float32.
    memory = 4 * policy.count_params(model)
    for num_devices, subjects in ((1, ["loading", "engine"]), (2, ["engine"])):
        engine = EngineConfig(
            tensor_parallel_size=num_devices, slots=1, max_model_len=256, kv_cache_mib=1
        )
        results = list(devices._check_engine(RunConfig(engine=engine), model, memory))
        assert [result.subject for result in results] == subjects
        assert results[0].status is (CheckStatus.WARNING if num_devices == 1 else CheckStatus.OK)
        assert results[-1].status is CheckStatus.OK


# --- endpoints ------------------------------------------------------------------------------------


@pytest.fixture
def chat_url() -> Iterator[str]:
    """URL of a chat endpoint that requires the key."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            is_authorized = self.headers["Authorization"] == "Bearer right"
            choice = {"message": {"role": "assistant", "content": "yes"}, "finish_reason": "stop"}
            body = json.dumps(
                {"choices": [choice]} if is_authorized else {"error": {"message": "who?"}}
            )
            self.send_response(200 if is_authorized else 401)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()
        thread.join(5)


def test_endpoints_check_reports_key_and_connection_errors(
    chat_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check_endpoint(url: str) -> CheckResult:
        endpoint = EndpointConfig(url, "m", "DOCTOR_KEY")
        cfg = RunConfig(
            policy=PolicyConfig(kind="openai", endpoint=endpoint), prompt=PromptConfig("webarena")
        )
        result: CheckResult = run_check(endpoints.check, cfg)["policy endpoint"]
        return result

    assert run_check(endpoints.check) == {}
    monkeypatch.delenv("DOCTOR_KEY", raising=False)
    assert_error(check_endpoint(chat_url), "who?", "export it in DOCTOR_KEY")
    monkeypatch.setenv("DOCTOR_KEY", "wrong")
    assert_error(check_endpoint(chat_url), "who?", "not valid")
    monkeypatch.setenv("DOCTOR_KEY", "right")
    assert check_endpoint(chat_url).status is CheckStatus.OK
    assert_error(check_endpoint("http://127.0.0.1:1/v1"), "sent no response")


def test_endpoints_check_sends_token_limit_of_run(monkeypatch: pytest.MonkeyPatch) -> None:
    with serve_chat(monkeypatch, "yes") as server:
        cfg = RunConfig(
            policy=PolicyConfig(kind="openai", endpoint=EndpointConfig(server.url, "m")),
            prompt=PromptConfig("webarena"),
            rollout=RolloutConfig(max_new_tokens=100),
        )
        assert run_check(endpoints.check, cfg)["policy endpoint"].status is CheckStatus.OK
    assert [body["max_tokens"] for body in server.bodies] == [100]


@pytest.fixture
def judge_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatServer]:
    with serve_chat(monkeypatch, "correct") as server:
        yield server


def test_endpoints_check_requests_verdict_of_judge(
    judge_server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check_judge(url: str) -> CheckResult:
        cfg = make_webarena_config(judge=JudgeConfig(url, "m", "DOCTOR_KEY"))
        result: CheckResult = run_check(endpoints.check, cfg)["judge"]
        return result

    monkeypatch.delenv("DOCTOR_KEY", raising=False)
    assert_error(check_judge(judge_server.url), "is not set: export", "suite.webarena.judge")
    monkeypatch.setenv("DOCTOR_KEY", "key")
    assert check_judge(judge_server.url).status is CheckStatus.OK
    assert "response_format" in judge_server.bodies[0]
    judge_server.replies = [Answer({"error": {"message": "no json_schema"}}, 400)]
    assert_error(check_judge(judge_server.url), "no json_schema", "judge.json_schema=False")
    assert_error(check_judge("http://127.0.0.1:1/v1"), "no verdict", "check suite.webarena.judge")


# --- all checks -----------------------------------------------------------------------------------


@pytest.mark.browser
def test_run_checks_ends_check_that_hangs(tmp_path: Path) -> None:
    executable = tmp_path / "chromium"
    executable.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 100\n")
    executable.chmod(0o755)
    cfg = RunConfig(browser=BrowserConfig(executable_path=str(executable)))
    (result,) = doctor.run_checks(cfg, tmp_path, checks=("browser",), timeout=5)
    assert_error(result, "did not finish in 5 s", "last line of its stderr")


def test_run_checks_reports_check_that_crashes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAX_PLATFORMS", "no-such-backend")
    results = doctor.run_checks(RunConfig(), tmp_path, checks=("machine", "devices", "nonsense"))
    assert results[0].subject == "packages" and results[0].status is CheckStatus.OK
    assert_error(results[-2], "JAX has none with JAX_PLATFORMS='no-such-backend'", "unset")
    assert_error(results[-1], "exit status 1", "No module named 'webagent_jax.doctor.nonsense'")
    lines = doctor.table(results).splitlines()
    assert lines[0].startswith("OK ") and lines[-2].startswith("error ")
    assert "-> see the last line" in lines[-1]


def test_only_devices_check_uses_accelerators(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A TPU belongs to the first process that uses it."""
    monkeypatch.setenv("JAX_PLATFORMS", "no-such-backend")
    *results, devices_result = doctor.run_checks(
        RunConfig(), tmp_path, checks=("weights", "devices")
    )
    assert {result.status for result in results} == {CheckStatus.OK}
    assert_error(devices_result, "JAX has none with JAX_PLATFORMS='no-such-backend'")


def test_run_checks_ignores_output_of_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "printing_suite.py").write_text(
        "import os\nmake_suite = lambda pool, config: os.system('echo on port 1234') or 1 / 0\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    cfg = RunConfig(suite=SuiteConfig(factory="printing_suite:make_suite"))
    (result,) = doctor.run_checks(cfg, tmp_path, checks=("sites",))
    assert_error(result, "division by zero")


def test_launcher_exit_status_reflects_findings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    main = load_main("doctor")
    monkeypatch.setattr(doctor, "run_checks", partial(doctor.run_checks, checks=("weights",)))
    with flagsaver.flagsaver(config=config.to_config_dict(RunConfig()), workdir=str(tmp_path)):
        main(["doctor.py"])
        assert "OK       weights" in capsys.readouterr().out
    cfg_without_policy = config.to_config_dict(RunConfig(policy=PolicyConfig(path=str(tmp_path))))
    with (
        flagsaver.flagsaver(config=cfg_without_policy, workdir=str(tmp_path), format="json"),
        pytest.raises(SystemExit, match="1"),
    ):
        main(["doctor.py"])
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["status"] == "error"
