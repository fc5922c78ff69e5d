"""Tests of the setup script of WebArena's sites with fake docker, curl and sleep."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "third_party" / "webarena"
PORTS = "SHOPPING_PORT=7770\nSHOPPING_ADMIN_PORT=7780\nREDDIT_PORT=9999\nGITLAB_PORT=8023\n"

# Log the command, and fail the first $FAILURES times that it contains $FAILING.
FAKE_COMMAND = """#!/usr/bin/env bash
[[ ${0##*/} == docker ]] && shift 5 # compose --env-file FILE -p PROJECT
echo "${0##*/} $*" >>"$LOG"
[[ ${0##*/} == docker && " $* " == *" tee "* ]] && cat >>"$LOG"
if [[ -n $FAILING && "${0##*/} $*" == *$FAILING* ]]; then
  echo "it is not ready"
  (($(grep -cF -- "$FAILING" "$LOG") > FAILURES)) || exit 1
fi
exit 0
"""

Result = subprocess.CompletedProcess[str]
Script = Callable[..., Result]


@pytest.fixture
def log_path(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def run_script(tmp_path: Path, log_path: Path) -> Script:
    """Return a function that runs site.sh for a site."""
    for name in ("docker", "curl", "sleep"):
        executable = tmp_path / name
        executable.write_text(FAKE_COMMAND)
        executable.chmod(0o755)
    (tmp_path / "a.env").write_text(PORTS)

    def run(site: str, failing: str = "", failures: int = 0, patience: int = 600) -> Result:
        environ = {
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "HOST": "sites.example",
            "LOG": str(log_path),
            "FAILING": failing,
            "FAILURES": str(failures),
            "PATIENCE": str(patience),
        }
        command = ["bash", str(FOLDER / "site.sh"), str(tmp_path / "a.env"), site]
        return subprocess.run(
            command, check=False, env=environ, capture_output=True, text=True, timeout=60
        )

    return run


def find_calls(log_path: Path, *words: str) -> list[str]:
    """Return the lines of the log that contain one of the words."""
    return [
        line for line in log_path.read_text().splitlines() if any(word in line for word in words)
    ]


def test_site_script_has_valid_bash_syntax() -> None:
    subprocess.run(["bash", "-n", str(FOLDER / "site.sh")], check=True)


@pytest.mark.parametrize("failing", ["gitlab-ctl status", "gitlab-ctl reconfigure", "curl"])
def test_gitlab_steps_are_retried_until_they_succeed(
    run_script: Script, log_path: Path, failing: str
) -> None:
    result = run_script("gitlab", failing, failures=3)
    assert (result.returncode, result.stdout) == (0, "gitlab: http://sites.example:8023\n")
    assert len(find_calls(log_path, failing)) == 4
    assert len(find_calls(log_path, "sleep 3")) == 3
    assert find_calls(log_path, "pg_resetwal") == []


def test_gitlab_configures_workers_and_connections(run_script: Script, log_path: Path) -> None:
    run_script("gitlab")
    assert find_calls(log_path, "puma[", "postgresql[") == [
        "puma['worker_processes'] = 4",
        "postgresql['max_connections'] = 2000",
    ]


@pytest.mark.parametrize("failing", ["gitlab-ctl reconfigure", "curl"])
def test_gitlab_database_is_repaired_after_failed_start(
    run_script: Script, log_path: Path, failing: str
) -> None:
    result = run_script("gitlab", failing, failures=1, patience=0)
    assert result.returncode == 0
    words = ("gitlab-ctl stop", "gitlab-ctl start", "postmaster.pid", "pg_resetwal")
    data = "/var/opt/gitlab/postgresql/data"
    assert find_calls(log_path, *words) == [
        "docker exec -T gitlab gitlab-ctl stop",
        f"docker exec -T gitlab rm -f {data}/postmaster.pid",
        f"docker exec -T -u gitlab-psql gitlab /opt/gitlab/embedded/bin/pg_resetwal -f {data}",
        "docker exec -T gitlab gitlab-ctl start",
    ]
    assert len(find_calls(log_path, "gitlab-ctl reconfigure")) == 2


@pytest.mark.parametrize(
    ("site", "failing"),
    [("gitlab", "gitlab-ctl reconfigure"), ("shopping", "mysql"), ("reddit", "curl")],
)
def test_failing_step_ends_at_deadline(
    run_script: Script, log_path: Path, site: str, failing: str
) -> None:
    result = run_script(site, failing, failures=10**6, patience=0)
    assert result.returncode != 0
    assert f"{site}: gave up after 0 s: " in result.stderr
    assert "it is not ready" in result.stderr
    assert "http://" not in result.stdout


def test_admin_site_allows_multiple_sessions_per_account(
    run_script: Script, log_path: Path
) -> None:
    assert run_script("shopping_admin").returncode == 0
    setting, flush, page = find_calls(log_path, "admin_account_sharing", "cache:flush", "curl")
    assert setting.endswith("config:set admin/security/admin_account_sharing 1")
    assert flush.endswith("cache:flush")
    assert page.endswith("--header Host: sites.example:7780 http://127.0.0.1:7780/admin")
    assert find_calls(log_path, "indexer") == []


def test_shop_indexes_on_schedule_and_warms_pages(run_script: Script, log_path: Path) -> None:
    assert run_script("shopping", "curl", failures=2).returncode == 0
    index, flush, *pages = find_calls(log_path, "indexer", "cache:flush", "curl")
    assert index.endswith("bin/magento indexer:set-mode schedule")
    assert flush.endswith("cache:flush")
    assert [page.rpartition(":7770")[2] for page in pages] == [
        *["/"] * 3,
        "/customer/account/login/",
    ]


def test_forum_configures_64_workers(run_script: Script, log_path: Path) -> None:
    assert run_script("reddit", "supervisorctl", failures=1).returncode == 0
    assert len(find_calls(log_path, "pm.max_children = 64")) == 1
    assert len(find_calls(log_path, "supervisorctl restart php-fpm")) == 2
    assert len(find_calls(log_path, "@RateLimit")) == 3
