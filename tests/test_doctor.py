"""The doctor finds what is broken, each state of it really produced, and ends in time."""

from __future__ import annotations

import http.server
import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from absl.testing import flagsaver

from tests.launchers import main_of
from tests.suites.webarena_sites import StandIn
from webagent_jax import config, doctor, policy, xla_flags
from webagent_jax.config import (
    BCConfig,
    BrowserConfig,
    EndpointConfig,
    EngineConfig,
    GRPOConfig,
    JudgeConfig,
    LoRAConfig,
    MeshConfig,
    PolicyConfig,
    RolloutConfig,
    RunConfig,
    SuiteConfig,
    WebArenaConfig,
)
from webagent_jax.doctor import (
    CheckStatus,
    Finding,
    browser,
    devices,
    endpoints,
    machine,
    sites,
    weights,
)

PATIENT = BrowserConfig(call_timeout=60.0, navigation_timeout=60.0)  # on a busy machine
TASKS = str(Path(__file__).parent / "suites" / "data" / "webarena_lite_test.json")

Check = Callable[[RunConfig, Path], Iterator[Finding]]


def found(check: Check, cfg: RunConfig | None = None, workdir: Path = Path("runs")) -> Any:
    """The findings by subject."""
    return {finding.subject: finding for finding in check(cfg or RunConfig(), workdir)}


def assert_broken(finding: Finding, what: str, mend: str = "") -> None:
    assert finding.status is CheckStatus.ERROR
    assert what in finding.description and mend in finding.fix and finding.fix, finding
    assert "\n" not in finding.description + finding.fix


# --- machine --------------------------------------------------------------------------------------


def test_this_machine_is_well(tmp_path: Path) -> None:
    told = found(machine.check, workdir=tmp_path / "not" / "yet")
    assert doctor.all_passed(list(told.values()))
    assert "jax 0." in told["packages"].description and "free" in told["workdir"].description
    assert not (tmp_path / "not").exists()


def test_packages_that_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    needed = ["numpy", "jax<0.1", "no-such-package>=2", "jax>99; extra == 'cuda'"]
    monkeypatch.setattr(machine, "_requirements", lambda: needed)
    told = found(machine.check)["packages"]
    assert_broken(told, "jax<0.1 is needed, ", "pip install")
    assert "no-such-package>=2 is missing" in told.description
    assert "numpy" not in told.description and "99" not in told.description


def test_a_workdir_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    told = found(machine.check, workdir=tmp_path / "file" / "run")["workdir"]
    assert_broken(told, "Not a directory", "another --workdir")


def test_too_few_open_files() -> None:
    told = found(machine.check, RunConfig(rollout=RolloutConfig(max_concurrent_episodes=10**9)))[
        "open files"
    ]
    assert told.status is CheckStatus.WARNING and told.fix


# --- browser --------------------------------------------------------------------------------------


@pytest.mark.browser
def test_a_browser_that_works() -> None:
    told = found(
        browser.check, RunConfig(browser=PATIENT, rollout=RolloutConfig(max_concurrent_episodes=2))
    )
    assert "Chrome" in told["browser"].description
    assert told["sandbox"].status is CheckStatus.OK
    assert "MiB" in told["browser memory"].description


def test_no_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEBAGENT_CHROMIUM", "/no/chromium")
    told = found(browser.check)["browser"]
    assert_broken(told, "is not a program", "unset WEBAGENT_CHROMIUM")
    assert_broken(found(sites.check)["miniwob"], "without a browser", "the browser first")


@pytest.mark.browser
@pytest.mark.parametrize(
    ("options", "subject", "what"),
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
            "never works for root",
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="for root"),
        ),
    ],
)
def test_a_browser_that_does_not_start(options: Any, subject: str, what: str) -> None:
    told = found(browser.check, RunConfig(browser=BrowserConfig(**options)))
    assert_broken(told[subject], what)
    assert len(told) == 1


@pytest.mark.browser
def test_what_chromium_says_itself(tmp_path: Path) -> None:
    lacking = tmp_path / "chromium"
    lacking.write_text("#!/bin/sh\necho chrome: libnss3.so: cannot open it >&2\nexit 127\n")
    lacking.chmod(0o755)
    told = found(browser.check, RunConfig(browser=BrowserConfig(executable_path=str(lacking))))
    assert_broken(told["browser"], "chrome: libnss3.so: cannot open it", "install --with-deps")


# --- sites ----------------------------------------------------------------------------------------


@pytest.mark.browser
def test_an_embedded_suite_shows_its_first_task() -> None:
    cfg = RunConfig(browser=PATIENT, suite=SuiteConfig(tasks=("click-test",)))
    told = found(sites.check, cfg)["miniwob"]
    assert told.status is CheckStatus.OK
    assert "miniwob/click-test/1000000 opened, with 1 elements" in told.description


def test_a_page_that_there_is_not() -> None:
    cfg = RunConfig(suite=SuiteConfig(tasks=("click-tset",)))
    assert_broken(found(sites.check, cfg)["miniwob"], "click-tset")


def webarena(**options: Any) -> RunConfig:
    chosen = WebArenaConfig(test_file=TASKS, sites=("gitlab",), **options)
    return RunConfig(suite=SuiteConfig(name="webarena_lite", webarena=chosen))


def test_sites_of_webarena(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITLAB", raising=False)
    monkeypatch.delenv("WA_GITLAB", raising=False)
    assert_broken(found(sites.check, webarena())["webarena_lite"], "sites without", "set GITLAB")
    well = StandIn("gitlab")
    monkeypatch.setenv("GITLAB", f"{well.address} http://127.0.0.1:1")
    told = [finding for finding in sites.check(webarena(), Path()) if finding.subject == "gitlab"]
    assert [finding.status for finding in told] == [CheckStatus.OK, CheckStatus.ERROR]
    assert_broken(told[1], "does not respond", "third_party/webarena")
    well.close()


# --- weights --------------------------------------------------------------------------------------


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    return shutil.copytree(policy.resolve_dir("webagent-tiny"), tmp_path / "policy")


def weigh(path: Path | str, **options: Any) -> Any:
    return found(weights.check, RunConfig(policy=PolicyConfig(path=str(path)), **options))


def test_the_shipped_policy_is_whole() -> None:
    told = weigh("webagent-tiny")
    assert {finding.status for finding in told.values()} == {CheckStatus.OK}
    assert set(told) == {"tokenizer", "weights", "disk"}
    assert "854,144 params, float32" in told["weights"].description
    less = weigh("webagent-tiny", lora=LoRAConfig(rank=1))["disk"]
    assert less.status is CheckStatus.OK and less.description != told["disk"].description


def test_an_empty_folder_as_weights(tmp_path: Path) -> None:
    assert_broken(weigh(tmp_path)["weights"], f"no policy at {tmp_path}", "--config.policy.path")


def test_a_family_that_is_not_supported(copied: Path) -> None:
    raw = json.loads((copied / "config.json").read_text())
    (copied / "config.json").write_text(json.dumps(raw | {"architectures": ["GPT2LMHeadModel"]}))
    assert_broken(weigh(copied)["weights"], "GPT2LMHeadModel", "supported: LlamaForCausalLM")
    raw.pop("hidden_size")
    (copied / "config.json").write_text(json.dumps(raw))
    assert_broken(weigh(copied)["weights"], "lacks 'hidden_size'")


def test_tensors_that_did_not_arrive(copied: Path) -> None:
    (file,) = copied.glob("*.safetensors")
    file.write_bytes(file.read_bytes()[:-1])
    assert_broken(weigh(copied)["weights"], f"{file} cannot be read", "again")
    file.unlink()
    assert_broken(weigh(copied)["weights"], "tensors are missing", "again")
    index = {"weight_map": {"model.norm.weight": "model-00002-of-00002.safetensors"}}
    (copied / "model.safetensors.index.json").write_text(json.dumps(index))
    assert_broken(weigh(copied)["weights"], "missing", "fetch model-00002-of-00002.safetensors")


def test_a_tokenizer_that_is_not_there(copied: Path) -> None:
    (copied / "tokenizer.json").unlink()
    told = weigh(copied)
    assert_broken(told["tokenizer"], "no tokenizer.json", "fast tokenizer")
    assert told["weights"].status is CheckStatus.OK


# --- devices --------------------------------------------------------------------------------------


def test_devices_that_do() -> None:
    told = found(devices.check)
    assert {finding.status for finding in told.values()} == {CheckStatus.OK}
    assert "(cpu)" in told["devices"].description and told["attention"].description == "cpu"
    assert "tensor 1" in told["mesh"].description


@pytest.mark.parametrize(
    ("options", "subject", "what"),
    [
        ({"mesh": MeshConfig(data=64, fsdp=1)}, "mesh", "does not cover"),
        ({"policy": PolicyConfig(attention="tpu")}, "attention", "does not run on backend 'cpu'"),
        (
            {"engine": EngineConfig(tensor_parallel_size=64)},
            "engine",
            "engine.tensor_parallel_size=64 is more than the",
        ),
        ({"engine": EngineConfig(kv_cache_mib=10**8)}, "engine", "of keys and values, of "),
        ({"engine": EngineConfig(max_model_len=10**6)}, "engine", "beyond the model's"),
    ],
)
def test_devices_that_do_not(options: Any, subject: str, what: str) -> None:
    cfg = RunConfig(bc=BCConfig(row_tokens=10**6), grpo=GRPOConfig(row_tokens=10**6), **options)
    assert_broken(found(devices.check, cfg)[subject], what)


def test_devices_reports_wrong_cpu_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure with a newer jaxlib means that `xla_flags` may not be needed for it."""
    monkeypatch.setenv("XLA_FLAGS", f"{xla_flags.YNN_FUSION}=+reduce")  # what XLA does by default
    findings = doctor.run_checks(RunConfig(), tmp_path, checks=("devices",))
    (finding,) = [finding for finding in findings if finding.subject == "CPU results"]
    assert_broken(finding, "instead of (1073741824.0, 3600.0)", xla_flags.DISABLE_YNN_REDUCE)


def test_a_policy_too_large_to_train(copied: Path) -> None:
    raw = json.loads((copied / "config.json").read_text())
    raw |= {"hidden_size": 65_536, "num_hidden_layers": 100, "intermediate_size": 262_144}
    (copied / "config.json").write_text(json.dumps(raw))
    cfg = RunConfig(policy=PolicyConfig(path=str(copied)), grpo=GRPOConfig(kl_beta=0.0))
    told = found(devices.check, cfg)
    assert told["training memory"].status is CheckStatus.WARNING
    assert_broken(told["engine"], "of params", "lower --config.engine.slots")


# --- endpoints ------------------------------------------------------------------------------------


@pytest.fixture
def chat() -> Iterator[str]:
    """An endpoint that answers who has the key."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            known = self.headers["Authorization"] == "Bearer right"
            reply = {"message": {"role": "assistant", "content": "yes"}, "finish_reason": "stop"}
            body = json.dumps({"choices": [reply]} if known else {"error": {"message": "who?"}})
            self.send_response(200 if known else 401)
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


def test_endpoints(chat: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(url: str) -> Finding:
        endpoint = EndpointConfig(url, "m", "DOCTOR_KEY")
        cfg = RunConfig(policy=PolicyConfig(kind="openai", endpoint=endpoint))
        finding: Finding = found(endpoints.check, cfg)["policy endpoint"]
        return finding

    assert found(endpoints.check) == {}
    monkeypatch.delenv("DOCTOR_KEY", raising=False)
    assert_broken(asked(chat), "who?", "export it in DOCTOR_KEY")
    monkeypatch.setenv("DOCTOR_KEY", "wrong")
    assert_broken(asked(chat), "who?", "not valid")
    monkeypatch.setenv("DOCTOR_KEY", "right")
    assert asked(chat).status is CheckStatus.OK
    assert_broken(asked("http://127.0.0.1:1/v1"), "sent no response")


def test_the_judge(chat: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cfg = webarena(judge=JudgeConfig(chat, "m", "DOCTOR_KEY"))
    monkeypatch.delenv("DOCTOR_KEY", raising=False)
    assert_broken(found(endpoints.check, cfg)["judge"], "is not set", "export")
    monkeypatch.setenv("DOCTOR_KEY", "right")
    assert found(endpoints.check, cfg)["judge"].status is CheckStatus.OK


# --- all together ---------------------------------------------------------------------------------


@pytest.mark.browser
def test_a_check_that_hangs_is_ended(tmp_path: Path) -> None:
    silent = tmp_path / "chromium"
    silent.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 100\n")
    silent.chmod(0o755)
    cfg = RunConfig(browser=BrowserConfig(executable_path=str(silent)))
    (told,) = doctor.run_checks(cfg, tmp_path, checks=("browser",), timeout=5)
    assert_broken(told, "did not finish in 5 s", "last line of its stderr")


def test_a_check_that_crashes_is_told_after_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAX_PLATFORMS", "no-such-backend")
    told = doctor.run_checks(RunConfig(), tmp_path, checks=("machine", "devices", "nonsense"))
    assert told[0].subject == "packages" and told[0].status is CheckStatus.OK
    assert_broken(told[-2], "JAX has none with JAX_PLATFORMS='no-such-backend'", "unset")
    assert_broken(told[-1], "exit status 1", "No module named 'webagent_jax.doctor.nonsense'")
    lines = doctor.table(told).splitlines()
    assert lines[0].startswith("OK ") and lines[-2].startswith("broken ")
    assert "-> see the last line" in lines[-1]


def test_launcher_exits_by_what_it_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    main = main_of("doctor")
    monkeypatch.setattr(doctor, "run_checks", partial(doctor.run_checks, checks=("weights",)))
    with flagsaver.flagsaver(config=config.to_config_dict(RunConfig()), workdir=str(tmp_path)):
        main(["doctor.py"])
        assert "OK       weights" in capsys.readouterr().out
    empty = config.to_config_dict(RunConfig(policy=PolicyConfig(path=str(tmp_path))))
    with (
        flagsaver.flagsaver(config=empty, workdir=str(tmp_path), format="json"),
        pytest.raises(SystemExit, match="1"),
    ):
        main(["doctor.py"])
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["status"] == "broken"
