"""The set-up scripts of WebArena's sites, with stand-ins for docker, curl and sleep."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "third_party" / "webarena"
PORTS = "SHOPPING_PORT=7770\nSHOPPING_ADMIN_PORT=7780\nREDDIT_PORT=9999\nGITLAB_PORT=8023\n"

# Logs its command, and fails the first $FAILURES times that it holds the words $FAILING.
STAND_IN = """#!/usr/bin/env bash
[[ ${0##*/} == docker ]] && shift 5 # compose --env-file FILE -p PROJECT
echo "${0##*/} $*" >>"$LOG"
[[ ${0##*/} == docker && " $* " == *" tee "* ]] && cat >>"$LOG"
if [[ -n $FAILING && "${0##*/} $*" == *$FAILING* ]]; then
  echo "it is not ready"
  (($(grep -cF -- "$FAILING" "$LOG") > FAILURES)) || exit 1
fi
exit 0
"""

Done = subprocess.CompletedProcess[str]
Script = Callable[..., Done]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def script(tmp_path: Path, log: Path) -> Script:
    """Runs site.sh for a site."""
    for name in ("docker", "curl", "sleep"):
        stand_in = tmp_path / name
        stand_in.write_text(STAND_IN)
        stand_in.chmod(0o755)
    (tmp_path / "a.env").write_text(PORTS)

    def run(site: str, failing: str = "", failures: int = 0, patience: int = 600) -> Done:
        environ = {
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "HOST": "sites.example",
            "LOG": str(log),
            "FAILING": failing,
            "FAILURES": str(failures),
            "PATIENCE": str(patience),
        }
        command = ["bash", str(FOLDER / "site.sh"), str(tmp_path / "a.env"), site]
        return subprocess.run(
            command, check=False, env=environ, capture_output=True, text=True, timeout=60
        )

    return run


def calls(log: Path, *words: str) -> list[str]:
    """Lines of the log that hold one of the words."""
    return [line for line in log.read_text().splitlines() if any(word in line for word in words)]


def test_site_script_is_bash() -> None:
    subprocess.run(["bash", "-n", str(FOLDER / "site.sh")], check=True)


@pytest.mark.parametrize("failing", ["gitlab-ctl status", "gitlab-ctl reconfigure", "curl"])
def test_gitlab_steps_are_retried_until_they_succeed(
    script: Script, log: Path, failing: str
) -> None:
    done = script("gitlab", failing, failures=3)
    assert (done.returncode, done.stdout) == (0, "gitlab: http://sites.example:8023\n")
    assert len(calls(log, failing)) == 4
    assert len(calls(log, "sleep 3")) == 3
    assert calls(log, "pg_resetwal") == []


def test_gitlab_has_workers_and_connections_for_many_episodes(script: Script, log: Path) -> None:
    script("gitlab")
    assert calls(log, "puma[", "postgresql[") == [
        "puma['worker_processes'] = 4",
        "postgresql['max_connections'] = 2000",
    ]


@pytest.mark.parametrize("failing", ["gitlab-ctl reconfigure", "curl"])
def test_gitlab_that_does_not_come_up_has_its_database_repaired(
    script: Script, log: Path, failing: str
) -> None:
    done = script("gitlab", failing, failures=1, patience=0)
    assert done.returncode == 0
    words = ("gitlab-ctl stop", "gitlab-ctl start", "postmaster.pid", "pg_resetwal")
    data = "/var/opt/gitlab/postgresql/data"
    assert calls(log, *words) == [
        "docker exec -T gitlab gitlab-ctl stop",
        f"docker exec -T gitlab rm -f {data}/postmaster.pid",
        f"docker exec -T -u gitlab-psql gitlab /opt/gitlab/embedded/bin/pg_resetwal -f {data}",
        "docker exec -T gitlab gitlab-ctl start",
    ]
    assert len(calls(log, "gitlab-ctl reconfigure")) == 2


@pytest.mark.parametrize(
    ("site", "failing"),
    [("gitlab", "gitlab-ctl reconfigure"), ("shopping", "mysql"), ("reddit", "curl")],
)
def test_step_that_never_succeeds_fails_at_its_deadline(
    script: Script, log: Path, site: str, failing: str
) -> None:
    done = script(site, failing, failures=10**6, patience=0)
    assert done.returncode != 0
    assert f"{site}: gave up after 0 s: " in done.stderr
    assert "it is not ready" in done.stderr
    assert "http://" not in done.stdout


def test_back_office_allows_several_sessions_of_an_account(script: Script, log: Path) -> None:
    assert script("shopping_admin").returncode == 0
    setting, flush, page = calls(log, "admin_account_sharing", "cache:flush", "curl")
    assert setting.endswith("config:set admin/security/admin_account_sharing 1")
    assert flush.endswith("cache:flush")
    assert page.endswith("--header Host: sites.example:7780 http://127.0.0.1:7780/admin")
    assert calls(log, "indexer") == []


def test_shop_indexes_on_schedule_and_is_warm(script: Script, log: Path) -> None:
    assert script("shopping", "curl", failures=2).returncode == 0
    index, flush, *pages = calls(log, "indexer", "cache:flush", "curl")
    assert index.endswith("bin/magento indexer:set-mode schedule")
    assert flush.endswith("cache:flush")
    assert [page.rpartition(":7770")[2] for page in pages] == [
        *["/"] * 3,
        "/customer/account/login/",
    ]


def test_forum_has_workers_for_64_episodes(script: Script, log: Path) -> None:
    assert script("reddit", "supervisorctl", failures=1).returncode == 0
    assert len(calls(log, "pm.max_children = 64")) == 1
    assert len(calls(log, "supervisorctl restart php-fpm")) == 2
    assert len(calls(log, "@RateLimit")) == 3
