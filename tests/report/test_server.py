"""Tests of the local server of runs: list, reports, comparison, and updates of open pages."""

from __future__ import annotations

import http.client
import re
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.launchers import load_main
from tests.report.browsing import DESKTOP, PHONE, launch_chromium
from tests.report.conftest import INJECTION, build_workdir, make_training_episodes
from tests.report.test_html import Tags, write_curve
from webagent_jax.config import ConfigError
from webagent_jax.local_site import LocalServer
from webagent_jax.report import run_list, server
from webagent_jax.report.episode_pages import EpisodeIndex
from webagent_jax.tracking import atomic_files, episode_log, metric_writers


@pytest.fixture(scope="module")
def root(workdir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with a complete run, two trainings and a run of another version."""
    root = tmp_path_factory.mktemp("runs")
    shutil.copytree(workdir, root / "sweep" / "full run")
    write_curve(root / "first", {"seed": 0, "grpo": {"updates": 9, "kl_beta": 0.0}}, 0.1)
    write_curve(root / "second", {"seed": 0, "grpo": {"updates": 9, "kl_beta": 0.1}}, 0.3)
    write_curve(root / "third", {"seed": 1, "grpo": {"updates": 9, "kl_beta": 0.1}}, 0.2)
    atomic_files.append_jsonl(root / "old" / "metrics.jsonl", [{"step": 1, "reward": 0.5}])
    atomic_files.write_json(root / "policy" / "config.json", {"model_type": "llama"})
    return root


@pytest.fixture(scope="module")
def site(root: Path) -> Iterator[LocalServer]:
    with LocalServer(server.make_app(root)) as site:
        yield site


def fetch(
    site: LocalServer, path: str, headers: dict[str, str] | None = None
) -> tuple[int, dict[str, str], str]:
    """Return status, headers and body; the path is sent as it is."""
    connection = http.client.HTTPConnection(site.address, timeout=120)
    connection.request("GET", path, headers=headers or {})
    response = connection.getresponse()
    body = response.read().decode("utf-8", errors="replace")
    connection.close()
    return response.status, {k.lower(): v for k, v in response.getheaders()}, body


def fetch_report(site: LocalServer, path: str) -> tuple[int, dict[str, str], str]:
    """Return the response after the first report is complete."""
    while (response := fetch(site, path))[0] == 503:
        pass
    return response


# --- runs -----------------------------------------------------------------------------------------


def test_find_workdirs_omits_phases_and_policies(root: Path) -> None:
    names = [path.relative_to(root).as_posix() for path in run_list.find_workdirs(root)]
    assert names == ["first", "old", "second", "sweep/full run", "third"]
    assert run_list.find_workdirs(root / "first") == [root / "first"]


def test_run_named_bc_hides_no_other_run(tmp_path: Path) -> None:
    for name in ("bc", "grpo", "other"):
        write_curve(tmp_path / name, {"seed": 0}, 0.1)
    names = [path.name for path in run_list.find_workdirs(tmp_path)]
    assert names == ["bc", "grpo", "other"]


def test_run_inside_workdir_of_other_run_is_listed(tmp_path: Path) -> None:
    for name in ("grpo", "grpo/bc", "grpo/eval_bc", "grpo/policy/eval"):
        write_curve(tmp_path / name, {"seed": 0}, 0.1)
    names = [path.relative_to(tmp_path).as_posix() for path in run_list.find_workdirs(tmp_path)]
    assert names == ["grpo", "grpo/eval_bc"]


def test_run_that_just_started_is_listed(tmp_path: Path) -> None:
    atomic_files.write_json(tmp_path / "new" / "config.json", {"config": {}, "commit": "0"})
    (workdir,) = run_list.find_workdirs(tmp_path)
    listed = run_list.read_run(workdir, tmp_path)
    assert listed.name == "new" and listed.progress == "" and listed.sparkline is None


def test_unreadable_config_is_not_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_curve(tmp_path / "run", {"seed": 0}, 0.1)
    atomic_files.write_json(tmp_path / "other" / "config.json", {"config": {}, "commit": "0"})

    def fail(path: Path) -> None:
        raise PermissionError(path)

    monkeypatch.setattr(run_list.atomic_files, "read_json", fail)
    assert run_list.find_workdirs(tmp_path) == [tmp_path / "run"]


def test_linked_runs_are_listed_once(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    write_curve(root / "b", {"seed": 0}, 0.1)
    write_curve(tmp_path / "elsewhere" / "c", {"seed": 0}, 0.1)
    (root / "a").symlink_to(root / "b")
    (root / "linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "up").symlink_to(tmp_path)
    (root / "dangling").symlink_to(tmp_path / "nowhere")
    assert run_list.find_workdirs(root) == [root / "b", root / "linked" / "c"]


def test_read_run_reports_progress_and_errors(root: Path) -> None:
    listed = run_list.read_run(root / "first", root)
    assert listed.progress == "M-GRPO update 3 of 9"
    assert listed.sparkline is not None
    assert listed.sparkline.label == "M-GRPO reward, 25% to 35%"
    old = run_list.read_run(root / "old", root)
    assert old.run is None and "KeyError('update')" in old.error


def test_read_run_reads_changed_files_only(tmp_path: Path) -> None:
    workdir = write_curve(tmp_path / "run", {"seed": 0}, 0.1)
    first = run_list.read_run(workdir, tmp_path)
    assert run_list.read_run(workdir, tmp_path, first) is first
    metric_writers.JsonlWriter(workdir / "metrics.jsonl").write(4, {"reward": 0.5})
    changed = run_list.read_run(workdir, tmp_path, first)
    assert changed.progress == "M-GRPO update 4" and changed.version != first.version


def test_config_differences_are_relative_to_most_runs(root: Path) -> None:
    runs = [run_list.read_run(path, root) for path in run_list.find_workdirs(root)]
    assert run_list.config_differences(runs) == {
        "first": {"grpo.kl_beta": "0.0"},
        "second": {},
        "sweep/full run": {},
        "third": {"seed": "1"},
    }


def test_config_differences_compare_whole_values(tmp_path: Path) -> None:
    folder = "a" * 60
    for seed in range(3):
        path = f"{folder}/seed{seed}"
        write_curve(tmp_path / f"run{seed}", {"policy": {"path": path}}, 0.1)
    runs = [run_list.read_run(path, tmp_path) for path in run_list.find_workdirs(tmp_path)]
    shown = {"policy.path": f"{folder[:59]}…"}
    assert run_list.config_differences(runs) == {"run0": {}, "run1": shown, "run2": shown}


# --- pages ----------------------------------------------------------------------------------------


def test_list_links_reports_and_shows_results(site: LocalServer) -> None:
    status, _, body = fetch(site, "/")
    assert status == 200
    links = [attrs.get("href") for tag, attrs in Tags(body).tags if tag == "a"]
    assert "/runs/sweep/full%20run/report.html" in links and "/runs/first/report.html" in links
    assert "/runs/old/report.html" not in links and "another version" in body
    assert "M-GRPO update 3 of 9" in body and "grpo.kl_beta=0.0" in body
    assert "M-GRPO reward, 25% to 35%" in body


def test_report_is_served_with_its_episodes(site: LocalServer) -> None:
    status, headers, body = fetch_report(site, "/runs/sweep/full%20run/report.html")
    assert status == 200 and "160 episodes" in body and "Success went from" in body
    assert fetch(site, "/runs/sweep/full%20run/report/index.js")[2].startswith("trajectories.index")
    same = {"If-None-Match": headers["etag"]}
    assert fetch(site, "/runs/sweep/full%20run/report.html", same)[::2] == (304, "")


@pytest.mark.parametrize("path", ["/", "/runs/first/report.html", "/compare?run=first"])
def test_pages_of_an_earlier_server_are_replaced(
    site: LocalServer, root: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upgrade of the package changes pages whose runs have not changed."""
    _, headers, _ = fetch_report(site, path)
    same = {"If-None-Match": headers["etag"]}
    assert fetch(site, path, same)[0] == 304
    monkeypatch.setattr(server, "_SERVER_START", "later")
    with LocalServer(server.make_app(root)) as restarted:
        fetch_report(restarted, path)
        status, headers, body = fetch(restarted, path, same)
        # An open page compares the two versions.
        assert status == 200 and f"data-version={headers['etag']}" in body


def test_served_pages_load_nothing_from_elsewhere(site: LocalServer) -> None:
    for path in ("/", "/runs/first/report.html", "/compare?run=first&run=second"):
        _, headers, body = fetch_report(site, path)
        tags = Tags(body).tags
        (policy,) = (
            attrs["content"]
            for _, attrs in tags
            if attrs.get("http-equiv") == "Content-Security-Policy"
        )
        assert policy and policy.startswith("default-src 'none'") and "http" not in policy
        assert sum(tag == "script" for tag, _ in tags) == 1
        assert not any("src" in attrs for _, attrs in tags)
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert headers["x-frame-options"] == "DENY"


@pytest.mark.parametrize(
    "path",
    [
        "/runs/none/report.html",
        "/runs/../../report.html",
        "/runs/first/report/../config.json",
        "/runs/first/report/..%2fconfig.json",
        "/runs/first/report/%2fetc%2fpasswd",
        "/runs/policy/report.html",
        "/compare?run=none",
        "/etc/passwd",
    ],
)
def test_other_paths_are_not_found(site: LocalServer, path: str) -> None:
    status, _, body = fetch(site, path)
    assert status == 404 and "Not found" in body


def test_other_hosts_are_refused(site: LocalServer) -> None:
    assert fetch(site, "/", {"Host": "rebound.example"})[0] == 400
    assert fetch(site, "/", {"Host": "localhost:1"})[0] == 200


def test_report_of_unreadable_run_names_the_problem(site: LocalServer) -> None:
    status, _, body = fetch(site, "/runs/old/report.html")
    assert status == 500 and "do not have the format of webagent_jax" in body


def test_report_is_rebuilt_when_files_change_but_not_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workdir = write_curve(tmp_path / "run", {"seed": 0}, 0.1)
    viewer = server.RunViewer(tmp_path)

    def read_report() -> str:
        report = viewer.report(viewer.find("run"), timeout_seconds=60)
        assert report is not None
        return report.text

    monkeypatch.setattr(server, "_MIN_REBUILD_SECONDS", 3600.0)
    first = read_report()
    metric_writers.JsonlWriter(workdir / "metrics.jsonl").write(4, {"reward": 0.5})
    assert read_report() == first
    assert not viewer._builds
    monkeypatch.setattr(server, "_MIN_REBUILD_SECONDS", 0.0)
    monkeypatch.setattr(server, "_MAX_BUILD_SHARE", float("inf"))
    # The earlier report is shown until the next one is complete.
    assert read_report() == first
    viewer._builds[workdir].result(60)
    assert "over 4 updates" in read_report()


def test_slow_first_report_shows_a_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_curve(tmp_path / "run", {"seed": 0}, 0.1)
    is_released = threading.Event()
    build = server._build

    def slow_build(listed: run_list.ListedRun) -> server._Report:
        is_released.wait(60)
        return build(listed)

    monkeypatch.setattr(server, "_build", slow_build)
    with LocalServer(server.make_app(tmp_path)) as site:
        status, _, body = fetch(site, "/runs/run/report.html")
        assert status == 503 and "Building the report" in body
        is_released.set()
        assert "over 3 updates" in fetch_report(site, "/runs/run/report.html")[2]


@pytest.mark.browser
def test_message_is_replaced_by_report_at_its_fragment(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.RunViewer.report, "__defaults__", (0.0,))
    workdir = write_curve(tmp_path / "run", {"seed": 0}, 0.1)
    episode_log.append_episodes(
        workdir / "episodes" / "update-00001.jsonl", make_training_episodes(1)
    )
    page = browser.new_page()
    with LocalServer(server.make_app(tmp_path)) as site:
        page.goto(f"{site.url}/runs/run/report.html#episode=update-1/3")
        expect(page.locator("h1")).to_have_text("Building the report")
        expect(page.locator(".counter")).to_have_text("Turn 1 of 3", timeout=60_000)
    page.close()


def test_comparison_does_not_wait_for_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        write_curve(tmp_path / name, {"seed": 0}, 0.1)
    is_released = threading.Event()
    write = server.episode_pages.write

    def slow_write(*args: Any) -> EpisodeIndex:
        is_released.wait(60)
        return write(*args)

    monkeypatch.setattr(server.episode_pages, "write", slow_write)
    with LocalServer(server.make_app(tmp_path)) as site:
        assert fetch(site, "/runs/a/report.html")[0] == 503
        assert "2 runs" in fetch(site, "/compare?run=a&run=b")[2]
        # The report is still being built.
        assert fetch(site, "/runs/a/report.html")[0] == 503
        is_released.set()


def test_comparison_draws_runs_in_one_plot(site: LocalServer) -> None:
    _, _, body = fetch(site, "/compare?run=first&run=second&run=third")
    assert "3 runs" in body and "second, third" in body and "(2 runs)" in body
    (reward,) = (
        attrs["data-curve"]
        for tag, attrs in Tags(body).tags
        if tag == "svg" and str(attrs.get("aria-label")).startswith("M-GRPO: Reward")
    )
    assert reward is not None
    assert '"name":"first"' in reward and '"name":"second, third"' in reward


def test_pages_escape_names_and_messages(tmp_path: Path) -> None:
    hostile = "<img src=x onerror=alert(1)>"
    write_curve(tmp_path / hostile, {"seed": 0, hostile: hostile}, 0.1)
    write_curve(tmp_path / "b", {"seed": 0, hostile: "b"}, 0.1)
    atomic_files.append_jsonl(tmp_path / f"{hostile}2" / "metrics.jsonl", [{"step": 1}])
    with LocalServer(server.make_app(tmp_path)) as site:
        quoted = "%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E"
        for path in ("/", f"/compare?run={quoted}&run=b", f"/runs/{quoted}/report.html"):
            status, _, body = fetch_report(site, path)
            assert status == 200 and "&lt;img src=x" in body
            assert not any(tag == "img" for tag, _ in Tags(body).tags)
        assert "<img" not in fetch(site, f"/runs/{quoted}2/report.html")[2]


# --- in Chromium ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launch_chromium() as browser:
        yield browser


@pytest.fixture
def tab(browser: Browser) -> Iterator[Page]:
    """Yield a tab; console messages and page errors fail the test."""
    page = browser.new_page(viewport=DESKTOP)
    page.set_default_timeout(30_000)
    messages: list[str] = []
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    yield page
    page.close()
    assert messages == []


@pytest.mark.browser
def test_open_list_shows_new_updates_and_runs(tab: Page, tmp_path: Path) -> None:
    write_curve(tmp_path / "b", {"seed": 1}, 0.1)
    workdir = write_curve(tmp_path / "a", {"seed": 0}, 0.1)
    with LocalServer(server.make_app(tmp_path)) as site:
        tab.goto(site.url)
        expect(tab.locator(".runs li").first).to_contain_text("M-GRPO update 3")
        tab.get_by_label("Compare b").check()
        tab.get_by_label("Compare b").focus()
        expect(tab.locator("#compare")).to_be_disabled()
        metric_writers.JsonlWriter(workdir / "metrics.jsonl").write(4, {"reward": 0.5})
        write_curve(tmp_path / "c", {"seed": 2}, 0.1)
        expect(tab.locator(".runs li")).to_have_count(3)
        expect(tab.locator(".runs")).to_contain_text("M-GRPO update 4")
        # The selection and the focus remain, and lead to the comparison.
        expect(tab.get_by_label("Compare b")).to_be_checked()
        expect(tab.get_by_label("Compare b")).to_be_focused()
        tab.get_by_label("Compare c").check()
        tab.get_by_role("button", name="Compare 2 runs").click()
        expect(tab.locator("h1")).to_have_text("2 runs")


@pytest.mark.browser
def test_open_report_shows_new_episodes_and_keeps_the_view(
    tab: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_MIN_REBUILD_SECONDS", 0.0)
    monkeypatch.setattr(server, "_MAX_BUILD_SHARE", float("inf"))
    workdir = build_workdir(tmp_path / "run")
    shutil.rmtree(workdir / "bc")  # drawing its curves is slow
    with LocalServer(server.make_app(tmp_path)) as site:
        fetch_report(site, "/runs/run/report.html")
        tab.goto(f"{site.url}/runs/run/report.html")
        expect(tab.locator("#browser")).to_be_visible()
        tab.locator("[name=log]").focus()
        tab.locator("[name=log]").select_option("training")
        expect(tab.locator("#count")).to_contain_text("16 episodes")
        tab.evaluate("document.body.dataset.same = 'true'")
        log = workdir / "grpo" / "episodes" / "update-00003.jsonl"
        episode_log.append_episodes(log, make_training_episodes(3))
        metric_writers.JsonlWriter(workdir / "grpo" / "metrics.jsonl").write(41, {"reward": 1.0})
        expect(tab.locator("#count")).to_contain_text("24 episodes", timeout=60_000)
        assert tab.evaluate("location.hash") == "#log=training"
        assert tab.evaluate("document.body.dataset.same") == "true"
        assert tab.locator("[name=log]").input_value() == "training"
        # The server may have answered between the writes of the episodes and of the metrics.
        plot = tab.locator("#training svg").first
        expect(plot).to_have_attribute("aria-label", re.compile("over 41 updates"), timeout=60_000)
        tab.locator("[name=log]").select_option("update-3")
        tab.locator("#episodes a").first.click()
        expect(tab.locator("#episode .observation li").nth(1)).to_have_text(INJECTION)


@pytest.mark.browser
def test_page_reports_a_stopped_server(browser: Browser, tmp_path: Path) -> None:
    page = browser.new_page()
    with LocalServer(server.make_app(tmp_path)) as site:
        page.goto(site.url)
        expect(page.locator("#live")).to_have_text("live")
        expect(page.locator(".missing")).to_contain_text("No run")
    expect(page.locator("#live")).to_have_text(
        "not updated: the server does not respond", timeout=20_000
    )
    page.close()


@pytest.mark.browser
def test_pointer_shows_values_of_a_curve(tab: Page, site: LocalServer) -> None:
    tab.goto(f"{site.url}/compare?run=first&run=second")
    plot = tab.locator("svg[data-curve]").first
    plot.hover()
    # Values 0.2, 0.3, 0.4 and 0.4, 0.5, 0.6; the middle of the plot is update 2.
    expect(tab.locator(".tip span")).to_have_text(
        ["update 2", "first mean 30.0 %, value 30.0 %", "second mean 50.0 %, value 50.0 %"]
    )
    # The marks lie on the drawn lines, which are the only paths of their color and width.
    marks = tab.evaluate(
        "[...document.querySelectorAll('.hover circle')].map(c => +c.getAttribute('cy'))"
    )
    lines = tab.evaluate(
        """[...document.querySelectorAll('svg[data-curve]')[0].querySelectorAll('path')]
        .filter(p => (p.getAttribute('style') ?? '').includes('stroke-width: 2'))
        .map(p => p.getPointAtLength(p.getTotalLength() / 2).y)"""
    )
    assert marks == pytest.approx(lines, abs=0.5)
    tab.mouse.move(2, 2)
    expect(tab.locator(".tip")).to_have_count(0)


@pytest.mark.browser
def test_pages_fit_phone_width(tab: Page, site: LocalServer) -> None:
    tab.set_viewport_size(PHONE)
    for path in ("/", "/compare?run=first&run=sweep/full%20run"):
        tab.goto(site.url + path)
        assert tab.evaluate("document.documentElement.scrollWidth") <= 390


# --- launcher -------------------------------------------------------------------------------------


def test_launcher_checks_its_directory(tmp_path: Path) -> None:
    main = load_main("view")
    with pytest.raises(ConfigError, match="one directory"):
        main(["view.py"])
    with pytest.raises(ConfigError, match="nowhere is not a directory"):
        main(["view.py", str(tmp_path / "nowhere")])
