"""Tests of the WebArena suite in Chromium on fake sites: logins, leases, resets, scores, faults."""

from __future__ import annotations

import json
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.chat_server import serve_chat
from tests.suites.webarena_sites import USERS, FakeSite, ResetServer, make_row, page_target
from webagent_jax.browser import BrowserPool
from webagent_jax.config import BrowserConfig, ConfigError, JudgeConfig, WebArenaConfig
from webagent_jax.local_site import StaticSite
from webagent_jax.suites.webarena import WebArena, map_probe, sites, verified
from webagent_jax.suites.webarena import suite as suite_module
from webagent_jax.suites.webarena.environment import WebArenaEnvironment
from webagent_jax.suites.webarena.suite import make_judge
from webagent_jax.types import Action, ActionKind, InfraError, Observation

pytestmark = pytest.mark.browser

TIMEOUT = 30.0  # seconds; upper bound for events that must happen
SHORT_WAIT = 0.3  # seconds; wait for events that must not happen
ANSWER: Any = {"must_include": ["42"]}
ROWS = [
    make_row(0, "gitlab", reference_answers=ANSWER),
    make_row(1, "gitlab", reference_url="__GITLAB__/about"),
    make_row(2, "gitlab", start="__GITLAB__/notes", program_html=[page_target("last", "milk")]),
    make_row(3, "gitlab", start="__GITLAB__/notes", program_html=[page_target("last", "eggs")]),
    make_row(4, "gitlab", start="__GITLAB__/ |AND| __GITLAB__/notes", reference_answers=ANSWER),
    make_row(5, "gitlab", "reddit", reference_answers=ANSWER),
    make_row(6, "shopping", "reddit", reference_answers=ANSWER),
    make_row(
        7,
        "shopping",
        program_html=[
            page_target("func:shopping_get_latest_order_url()", "milk")
            | {"locator": "document.body.innerText"}
        ],
    ),
    make_row(8, "gitlab", reference_answers={"fuzzy_match": ["meaning"]}),
    make_row(9, "gitlab", program_html=[page_target("__GITLAB__/notes", "milk")]),
    make_row(10, "gitlab", start="__GITLAB__/nowhere", reference_answers=ANSWER),
    make_row(11, "shopping_admin", reference_answers=ANSWER),
    make_row(12, "reddit", reference_answers=ANSWER),
    make_row(13, "map", reference_answers=ANSWER),
    make_row(14, "gitlab", reference_answers={"must_include": ["25"]}),
]


@pytest.fixture(scope="module")
def pool() -> Iterator[BrowserPool]:
    config = BrowserConfig(call_timeout=60.0, navigation_timeout=60.0)
    with BrowserPool(config) as browser_pool:
        yield browser_pool


class Deployment:
    """Fake sites, the environment variables that contain their addresses, and suites on them."""

    def __init__(self, pool: BrowserPool, folder: Path) -> None:
        self._pool, self._folder = pool, folder
        self.resources: list[Any] = []
        self.log_lines: list[str] = []
        self.environ: dict[str, str] = {}
        (folder / "tasks.json").write_text(json.dumps(ROWS))

    @property
    def auth_dir(self) -> Path:
        return self._folder / "states"

    def add_site(self, name: str, **options: Any) -> FakeSite:
        """Add a replica of a site."""
        site = FakeSite(name, **options)
        self.resources.append(site)
        addresses = self.environ.get(name.upper(), "")
        self.environ[name.upper()] = f"{addresses} {site.address}"
        return site

    def make_suite(self, *names: str, **options: Any) -> WebArena:
        config = WebArenaConfig(
            test_file=str(self._folder / "tasks.json"), auth_dir=str(self.auth_dir), **options
        )
        suite = WebArena(self._pool, config, names, self.log_lines.append, self.environ)
        self.resources.append(suite)
        return suite

    def close(self) -> None:
        for resource in reversed(self.resources):
            resource.close()


@pytest.fixture
def deployment(pool: BrowserPool, tmp_path: Path) -> Iterator[Deployment]:
    fake_deployment = Deployment(pool, tmp_path)
    yield fake_deployment
    fake_deployment.close()


def open_environment(suite: WebArena, name: str) -> WebArenaEnvironment:
    return suite.make_env(suite.task(name, "test", 0))


def act(
    environment: WebArenaEnvironment, page: Observation, name: str, **action: Any
) -> Observation:
    """Click the element of this name, or type `value` into it and submit."""
    kind = ActionKind.SEARCH if "value" in action else ActionKind.CLICK
    element = next(i for i, element in page.elements.items() if element.name == name)
    step = environment.step(Action(kind, element, **action))
    assert step.observation.error is None
    return step.observation


def add_note(environment: WebArenaEnvironment, note: str) -> Observation:
    return act(environment, environment.reset().observation, "Note", value=note)


class BackgroundCall:
    """Function call in another thread."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._result = self._function()
        self._done.set()

    def is_done(self, timeout: float = SHORT_WAIT) -> bool:
        return self._done.wait(timeout)

    def result(self) -> Any:
        assert self._done.wait(TIMEOUT)
        return self._result


# --- sites of users -------------------------------------------------------------------------------


def test_task_file_on_site_of_its_own(deployment: Deployment, tmp_path: Path) -> None:
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "index.html").write_text("<h1>Customers</h1><a href='/ada.html'>Ada</a>")
    (folder / "ada.html").write_text("<h1>Ada</h1><p>Orders: 42</p>")
    rows = [
        make_row(0, "crm", reference_url="__CRM__/ada.html", reference_answers=ANSWER),
        make_row(1, "crm", "gitlab", reference_answers=ANSWER),
        make_row(
            2,
            "crm",
            program_html=[
                page_target("__CRM__/ada.html", "Orders: 42")
                | {"locator": "document.body.innerText"}
            ],
        ),
    ]
    (tmp_path / "tasks.json").write_text(json.dumps(rows))
    with StaticSite(folder) as site:
        suite = deployment.make_suite("0", "2", addresses=(f"crm={site.url}",), sites=("crm",))
        environment = open_environment(suite, "0")
        page = act(environment, environment.reset().observation, "Ada")
        assert page.url == f"{site.url}/ada.html"
        assert environment.compute_reward("42") == 1.0
        assert environment.compute_reward("41") == 0.0
        environment.close()
        environment = open_environment(suite, "2")
        environment.reset()
        assert environment.compute_reward(None) == 1.0
        environment.close()


# --- logins ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "number"),
    [("shopping", "7"), ("shopping_admin", "11"), ("reddit", "12"), ("gitlab", "0")],
)
def test_login_uses_form_of_each_site(deployment: Deployment, name: str, number: str) -> None:
    site = deployment.add_site(name)
    open_environment(deployment.make_suite(number), number).close()
    state_files = list(deployment.auth_dir.iterdir())
    # One login, reused by the episode. For shopping_admin the suite also tests a second session.
    assert site.num_logins == len(state_files) == (2 if name == "shopping_admin" else 1)
    assert stat.S_IMODE(deployment.auth_dir.stat().st_mode) == 0o700
    for state in state_files:
        assert stat.S_IMODE(state.stat().st_mode) == 0o600
        assert USERS[name][1] not in state.read_text()


def test_later_run_reuses_auth_state(deployment: Deployment) -> None:
    site = deployment.add_site("gitlab")
    for _ in range(2):
        environment = open_environment(deployment.make_suite("2"), "2")
        assert "Notes of byteblaze" in environment.reset().observation.text
        environment.close()
    assert site.num_logins == 1


def test_episode_signs_in_to_two_sites(deployment: Deployment) -> None:
    gitlab, reddit = deployment.add_site("gitlab"), deployment.add_site("reddit", host="127.0.0.2")
    environment = open_environment(deployment.make_suite("5"), "5")
    assert len(list(deployment.auth_dir.iterdir())) == 3
    environment.close()
    assert len(list(deployment.auth_dir.iterdir())) == 2
    assert (gitlab.num_logins, reddit.num_logins) == (1, 1)


def test_sites_with_conflicting_cookies_raise_error(deployment: Deployment) -> None:
    deployment.add_site("shopping")
    deployment.add_site("reddit")
    suite = deployment.make_suite("6")
    with pytest.raises(ConfigError, match="overwrite one another's cookie PHPSESSID"):
        open_environment(suite, "6")


def test_wrong_password_error_hides_password(deployment: Deployment) -> None:
    deployment.add_site("gitlab")
    deployment.environ["WEBAGENT_GITLAB_PASSWORD"] = "not-the-one"
    with pytest.raises(ConfigError) as error:
        deployment.make_suite("0")
    assert "did not sign byteblaze in and shows 'Invalid login or password.'" in str(error.value)
    assert "WEBAGENT_GITLAB_PASSWORD" in str(error.value)
    assert "not-the-one" not in str(error.value)
    assert list(deployment.auth_dir.iterdir()) == []


def test_account_from_environment_has_own_auth_state(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = deployment.add_site("gitlab")
    deployment.make_suite("0")
    monkeypatch.setitem(USERS, "gitlab", ("me", "secret"))
    deployment.environ |= {"WEBAGENT_GITLAB_USER": "me", "WEBAGENT_GITLAB_PASSWORD": "secret"}
    open_environment(deployment.make_suite("0"), "0").close()
    assert list(site.sessions.values()) == ["byteblaze", "me"]


def test_missing_login_form_raises_error(deployment: Deployment) -> None:
    site = deployment.add_site("shopping_admin")
    deployment.environ["SHOPPING_ADMIN"] = site.base
    with pytest.raises(ConfigError, match=f"no login form at {site.base}"):
        deployment.make_suite("11")


def test_login_waits_for_slow_form(deployment: Deployment) -> None:
    site = deployment.add_site("shopping", slow_form=True)
    deployment.make_suite("7")
    assert site.num_logins == 1


def test_expired_auth_state_is_renewed(deployment: Deployment) -> None:
    site = deployment.add_site("gitlab")
    suite = deployment.make_suite("2")
    site.sessions.clear()
    environment = open_environment(suite, "2")
    assert "Notes of byteblaze" in environment.reset().observation.text
    assert site.num_logins == 2
    environment.close()


@pytest.mark.parametrize(("lifetime", "num_logins"), [(-60, 2), (30, 2), (3600, 1)])
def test_auth_state_with_expired_cookie_is_renewed(
    deployment: Deployment, lifetime: int, num_logins: int
) -> None:
    site = deployment.add_site("gitlab")
    suite = deployment.make_suite("2")
    [path] = deployment.auth_dir.iterdir()
    state = json.loads(path.read_text())
    # The site still knows the session.
    for cookie in state["cookies"]:
        cookie["expires"] = time.time() + lifetime
    path.write_text(json.dumps(state))
    environment = open_environment(suite, "2")
    assert "Notes of byteblaze" in environment.reset().observation.text
    assert site.num_logins == num_logins
    environment.close()


def test_corrupt_auth_state_is_renewed(deployment: Deployment) -> None:
    site = deployment.add_site("gitlab")
    suite = deployment.make_suite("0")
    next(deployment.auth_dir.iterdir()).write_text('{"cookies": [')
    open_environment(suite, "0").close()
    assert site.num_logins == 2


def test_logout_does_not_affect_other_episodes(deployment: Deployment) -> None:
    site = deployment.add_site("gitlab")
    suite = deployment.make_suite("4")
    first, second = open_environment(suite, "4"), open_environment(suite, "4")
    first.reset()
    page = first.step(Action(ActionKind.SWITCH_TAB, value="1")).observation
    act(first, page, "Sign out")
    first.close()
    second.reset()
    page = second.step(Action(ActionKind.SWITCH_TAB, value="1")).observation
    assert "Notes of byteblaze" in page.text
    second.close()
    open_environment(suite, "4").close()
    assert site.num_logins == 3  # one per episode, and one that replaces the ended session


# --- episodes -------------------------------------------------------------------------------------


def test_reward_scores_answer(deployment: Deployment) -> None:
    deployment.add_site("gitlab")
    environment = open_environment(deployment.make_suite("0"), "0")
    start = environment.reset()
    assert start.intent == "Do number 0"
    assert start.observation.url.endswith("/")
    assert [environment.compute_reward(a) for a in ("It is 42", "It is 43", None)] == [
        1.0,
        0.0,
        0.0,
    ]
    assert environment.screenshot().startswith(b"\xff\xd8")
    environment.close()


def test_matching_rules_of_config_apply(deployment: Deployment) -> None:
    deployment.add_site("gitlab")
    # WebArena-Lite compares words; WebArena requires a word only for one character.
    for rules, reward in (("lite", 0.0), ("webarena", 1.0)):
        environment = open_environment(deployment.make_suite("14", matching_rules=rules), "14")
        environment.reset()
        assert environment.compute_reward("1255") == reward
        assert environment.compute_reward("25") == 1.0
        environment.close()


def test_judge_of_config_scores_fuzzy_answer(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment.add_site("gitlab")
    with serve_chat(monkeypatch, "correct", "incorrect") as chat_server:
        judge = JudgeConfig(url=chat_server.url, model="m")
        environment = open_environment(deployment.make_suite("8", judge=judge), "8")
        environment.reset()
        assert [environment.compute_reward("sense") for _ in range(2)] == [1.0, 0.0]
        environment.close()
    for prompt in chat_server.prompts:
        texts = ("Task", "Do number 8"), ("Reference answer", "meaning"), ("agent", "sense")
        assert all(f'{name}: "{text}"' in prompt for name, text in texts)


def test_reward_scores_final_url(deployment: Deployment) -> None:
    deployment.add_site("gitlab")
    environment = open_environment(deployment.make_suite("1"), "1")
    page = environment.reset().observation
    assert environment.compute_reward(None) == 0.0
    act(environment, page, "About")
    assert environment.compute_reward(None) == 1.0
    environment.close()


@pytest.mark.parametrize("number", ["2", "9"])  # at the last page, and at a URL
def test_reward_scores_page_contents(deployment: Deployment, number: str) -> None:
    site = deployment.add_site("gitlab")
    environment = open_environment(deployment.make_suite(number), number)
    environment.reset()
    assert environment.compute_reward(None) == 0.0
    site.notes.append("milk")
    environment.reset()
    assert environment.compute_reward(None) == 1.0
    environment.close()


def test_network_log_is_kept_on_request_without_requests_of_evaluators(
    deployment: Deployment,
) -> None:
    site = deployment.add_site("gitlab")
    environment = open_environment(deployment.make_suite("9"), "9")
    environment.reset()
    environment.compute_reward(None)
    assert environment.episode_files() == {}
    environment.close()
    environment = open_environment(deployment.make_suite("9", keep_network_logs=True), "9")
    page = environment.reset().observation
    act(environment, page, "About")
    environment.compute_reward(None)
    assert "/notes" in site.request_paths  # requested by the evaluator
    files = environment.episode_files()
    urls = [e["request"]["url"] for e in verified.har_entries(files[verified.NETWORK_FILE])]
    assert urls == [f"{site.base}/", f"{site.base}/about"]
    addresses, final_url = verified.read_sites_file(files[verified.SITES_FILE])
    assert (addresses, final_url) == ({"gitlab": site.base}, f"{site.base}/about")
    environment.close()


def test_reward_queries_newest_order(deployment: Deployment) -> None:
    site = deployment.add_site("shopping")
    environment = open_environment(deployment.make_suite("7"), "7")
    environment.reset()
    assert environment.compute_reward(None) == 0.0
    assert "/sales/order/view/order_id/191/" in site.request_paths
    environment.close()


def test_start_urls_open_as_tabs_with_first_active(deployment: Deployment) -> None:
    site = deployment.add_site("gitlab")
    environment = open_environment(deployment.make_suite("4"), "4")
    page = environment.reset().observation
    assert page.url == f"{site.base}/"
    assert "tab 1" in page.text
    second_page = environment.step(Action(ActionKind.SWITCH_TAB, value="1")).observation
    assert second_page.url == f"{site.base}/notes"
    environment.close()


def test_episode_reaches_only_its_replica(deployment: Deployment) -> None:
    first, second = deployment.add_site("gitlab"), deployment.add_site("gitlab")
    environment = open_environment(deployment.make_suite("0"), "0")
    environment.reset()
    replica, other_replica = (first, second) if "/" in first.request_paths[-1:] else (second, first)
    num_requests = len(other_replica.request_paths)
    script = f"() => fetch('{other_replica.base}/about').then(() => 'reached', () => 'kept away')"
    assert environment._session.evaluate(script) == "kept away"
    assert len(other_replica.request_paths) == num_requests
    assert replica.request_paths
    environment.close()


# --- leases and resets ----------------------------------------------------------------------------


def test_writing_tasks_share_one_replica_sequentially(deployment: Deployment) -> None:
    site = deployment.add_site("gitlab")
    suite = deployment.make_suite("2", "3")
    first = open_environment(suite, "2")
    second = BackgroundCall(lambda: open_environment(suite, "3"))
    assert not second.is_done()
    add_note(first, "milk")
    assert first.compute_reward(None) == 1.0
    first.close()
    environment = second.result()
    add_note(environment, "eggs")
    assert environment.compute_reward(None) == 1.0
    environment.close()
    assert site.notes == ["milk", "eggs"]


def test_two_replicas_run_two_writing_tasks(deployment: Deployment) -> None:
    one, two = deployment.add_site("gitlab"), deployment.add_site("gitlab")
    suite = deployment.make_suite("2", "3")
    first, second = open_environment(suite, "2"), open_environment(suite, "3")
    add_note(first, "milk")
    add_note(second, "eggs")
    assert (first.compute_reward(None), second.compute_reward(None)) == (1.0, 1.0)
    first.close()
    second.close()
    assert sorted([one.notes, two.notes]) == [["eggs"], ["milk"]]


def test_reading_tasks_share_replica(deployment: Deployment) -> None:
    site = deployment.add_site("gitlab")
    suite = deployment.make_suite("0", "1")
    first, second = open_environment(suite, "0"), open_environment(suite, "1")
    first.reset(), second.reset()
    assert len(site.sessions) == 2  # one per episode
    first.close()
    second.close()


def test_modified_replica_is_reset_before_next_episode(deployment: Deployment) -> None:
    site = deployment.add_site("gitlab")
    suite = deployment.make_suite("2", "3", reset_url="http://{host}:{port}/reset?site={site}")
    for name, note in (("2", "milk"), ("3", "eggs")):
        environment = open_environment(suite, name)
        add_note(environment, note)
        assert environment.compute_reward(None) == 1.0
        environment.close()
    assert (site.num_resets, site.notes) == (2, ["eggs"])
    assert site.num_logins == 3  # initially, and after each reset


def test_sites_of_one_reset_server_reset_together(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sites, "_PROBE_PAUSE", 0.01)
    replicas = [deployment.add_site("gitlab"), deployment.add_site("reddit", host="127.0.0.2")]
    server = ResetServer(replicas)
    deployment.resources.append(server)
    suite = deployment.make_suite(
        "2", "12", reset_url=f"{server.base}/reset", reset_status_url=f"{server.base}/status"
    )
    environment, other_environment = open_environment(suite, "2"), open_environment(suite, "12")
    # Another reset would end the first episode.
    assert [site.num_resets for site in replicas] == [1, 1]
    add_note(environment, "milk")
    assert environment.compute_reward(None) == 1.0
    environment.close()
    other_environment.close()
    open_environment(suite, "12").close()
    assert [site.num_resets for site in replicas] == [2, 2]
    assert replicas[0].notes == []


def test_suite_passes_options_to_replica_pool(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[dict[str, Any]] = []

    def make_pool(addresses: Any, **options: Any) -> SimpleNamespace:
        calls.append(options)
        return SimpleNamespace(close=lambda: None)

    monkeypatch.setattr(suite_module, "ReplicaPool", make_pool)
    deployment.add_site("gitlab")
    urls = ("http://{host}/reset", "http://{host}/status")
    deployment.make_suite(
        "0",
        replica_timeout=7.0,
        reset_every=3,
        reset_url=urls[0],
        reset_status_url=urls[1],
        reset_timeout=11.0,
    )
    [options] = calls
    assert (options["timeout"], options["reset_every"]) == (7.0, 3)
    assert options["reset"] == sites.ResetHook(urls[0], 11.0, urls[1])


def test_reset_status_url_requires_reset_url(deployment: Deployment) -> None:
    deployment.add_site("gitlab")
    with pytest.raises(ConfigError, match=r"reset_status_url needs suite\.webarena\.reset_url"):
        deployment.make_suite("2", reset_status_url="http://{host}/status")


# --- faults ---------------------------------------------------------------------------------------


def test_unhealthy_site_at_start_raises_error(deployment: Deployment) -> None:
    deployment.add_site("gitlab", status=502)
    with pytest.raises(ConfigError, match=r"gitlab at http://127.* responded with 502"):
        deployment.make_suite("0")


def test_login_page_is_fetched_before_browser_opens_it(deployment: Deployment) -> None:
    """After a cache flush the page takes longer than browser.navigation_timeout."""
    site = deployment.add_site("gitlab")
    deployment.make_suite("0")
    # The last request posts the form.
    assert site.request_paths[:4] == ["/", *["/users/sign_in"] * 3]


def test_map_with_tiles_and_routes_is_healthy(deployment: Deployment) -> None:
    servers = deployment.add_site("tiles")
    deployment.add_site("map", tiles=servers.base, router=servers.base)
    open_environment(
        deployment.make_suite("13", extra_origins=(f"map={servers.origin}",)), "13"
    ).close()
    assert "/tile/0/0/0.png" in servers.request_paths
    assert deployment.log_lines == []


@pytest.mark.parametrize("kind", ["tiles", "router"])
@pytest.mark.parametrize("fault", ["blocked", "down", "gone"])
def test_failing_tile_server_or_router_raises_error(
    deployment: Deployment, kind: str, fault: str
) -> None:
    server = deployment.add_site("tiles", status=502 if fault == "down" else 200)
    deployment.add_site("map", **{kind: server.base})
    if fault == "gone":
        server.close()
        deployment.resources.remove(server)
    origins = () if fault == "blocked" else (f"map={server.origin}",)
    resource = {"tiles": "tiles", "router": "routes"}[kind]
    fixes = {"blocked": "suite.webarena.extra_origins=map=", "down": "check that server"}
    with pytest.raises(ConfigError) as error:
        deployment.make_suite("13", extra_origins=origins)
    assert f"gets no {resource} from {server.origin}" in str(error.value)
    assert fixes.get(fault, fixes["down"]) in str(error.value)
    assert str(error.value).count("\n") == 0  # the other resource has no error


def test_map_without_tile_or_route_requests_is_logged(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(map_probe, "_TIMEOUT", 0.1)
    site = deployment.add_site("wikipedia")
    deployment.environ["MAP"] = site.base
    deployment.make_suite("13")
    assert [line.partition(" requests ")[2][:9] for line in deployment.log_lines] == [
        "no tiles ",
        "no routes",
    ]


def test_site_outage_raises_infra_error(deployment: Deployment) -> None:
    site = deployment.add_site("gitlab")
    suite = deployment.make_suite("9")
    environment = open_environment(suite, "9")
    environment.reset()
    site.status = 500
    with pytest.raises(InfraError, match="/notes responded with 500"):
        environment.compute_reward(None)
    environment.close()
    with pytest.raises(
        InfraError, match=r"gitlab at .* responded with 500: it may still be starting"
    ):
        open_environment(suite, "9")
    site.status = 200
    open_environment(suite, "9").close()


def test_outage_of_site_without_login_is_no_failure(deployment: Deployment) -> None:
    site = deployment.add_site("map")
    environment = open_environment(deployment.make_suite("13"), "13")
    environment.reset()
    assert environment.compute_reward("43") == 0.0
    site.status = 502
    with pytest.raises(InfraError, match=r"map at .* responded with 502"):
        environment.compute_reward("43")
    environment.close()


def test_session_ended_by_other_login_raises_infra_error(deployment: Deployment) -> None:
    site = deployment.add_site("shopping_admin", single_session=True)
    suite = deployment.make_suite("11")
    assert [line for line in deployment.log_lines if "admin_account_sharing=1" in line] == [
        f"shopping_admin at {site.address} allows one session per account: episodes at the same "
        "time need admin/security/admin_account_sharing=1, which third_party/webarena/site.sh sets"
    ]
    first = open_environment(suite, "11")
    first.reset()
    second = open_environment(suite, "11")  # uses another login
    second.reset()
    with pytest.raises(InfraError, match=r"ended the session of admin .*admin_account_sharing=1"):
        first.compute_reward("43")
    assert first.compute_reward("It is 42") == 1.0  # a success needs no session
    assert second.compute_reward("43") == 0.0
    first.close()
    second.close()


def test_concurrent_sessions_are_scored(deployment: Deployment) -> None:
    deployment.add_site("shopping_admin")
    suite = deployment.make_suite("11")
    assert deployment.log_lines == []
    first, second = open_environment(suite, "11"), open_environment(suite, "11")
    first.reset(), second.reset()
    assert (first.compute_reward("43"), second.compute_reward("43")) == (0.0, 0.0)
    first.close()
    second.close()


@pytest.mark.parametrize("way", ["click", "address"])
def test_agent_logout_is_scored(deployment: Deployment, way: str) -> None:
    site = deployment.add_site("gitlab")
    environment = open_environment(deployment.make_suite("2"), "2")
    page = environment.reset().observation
    if way == "click":
        act(environment, page, "Sign out")
    else:
        environment.step(Action(ActionKind.GOTO, value=f"{site.base}/logout"))
    assert site.sessions == {}
    assert environment.compute_reward(None) == 0.0
    environment.close()


def test_missing_start_page_raises_infra_error(deployment: Deployment) -> None:
    deployment.add_site("gitlab")
    environment = open_environment(deployment.make_suite("10"), "10")
    with pytest.raises(InfraError, match="/nowhere responded with 404"):
        environment.reset()
    environment.close()


def test_unauthorized_shop_api_raises_infra_error(deployment: Deployment) -> None:
    deployment.add_site("shopping")
    deployment.environ["WEBAGENT_SHOPPING_SITE_ADMIN_PASSWORD"] = "wrong"
    environment = open_environment(deployment.make_suite("7"), "7")
    environment.reset()
    with pytest.raises(InfraError, match="REST API responded with 401") as error:
        environment.compute_reward(None)
    assert "wrong" not in str(error.value)
    environment.close()


def test_second_close_does_not_release_lease_again(deployment: Deployment) -> None:
    deployment.add_site("gitlab")
    suite = deployment.make_suite("0", "2")
    environment = open_environment(suite, "0")
    environment.close()
    environment.close()
    open_environment(suite, "2").close()


# --- task selection -------------------------------------------------------------------------------


def test_judge_tasks_are_skipped_without_judge(deployment: Deployment) -> None:
    deployment.add_site("gitlab")
    suite = deployment.make_suite("0", "8")
    assert suite.task_names("test") == ("0",)
    assert deployment.log_lines == [
        "1 of 2 test tasks need a judge and are skipped: "
        "set suite.webarena.judge.url and suite.webarena.judge.model to include them"
    ]


def test_judge_without_key_raises_error(deployment: Deployment) -> None:
    deployment.add_site("gitlab")
    judge = JudgeConfig(url="http://127.0.0.1:1/v1", model="m", api_key_env="JUDGE_KEY")
    with pytest.raises(ConfigError, match=r"api_key_env='JUDGE_KEY' is not set"):
        deployment.make_suite("8", judge=judge)
    deployment.environ["JUDGE_KEY"] = "k"
    assert deployment.make_suite("8", judge=judge).task_names("test") == ("8",)


def test_judge_has_options_of_config(tmp_path: Path) -> None:
    config = JudgeConfig(
        url="http://127.0.0.1:1/v1", model="m", cache_dir=str(tmp_path), json_schema=False
    )
    judge = make_judge(config, {})
    assert judge and (judge.url, judge.model, judge.cache) == (config.url, "m", tmp_path)
    assert not judge.json_schema and make_judge(JudgeConfig(), {}) is None


def test_task_attempts_have_unique_ids(deployment: Deployment) -> None:
    deployment.add_site("gitlab")
    suite = deployment.make_suite("0", "1")
    ids = [suite.task("1", "test", index).id for index in range(3)]
    assert ids == ["webarena/test/1", "webarena/test/1/1", "webarena/test/1/2"]
    assert [task.id for task in suite.tasks("test")] == ["webarena/test/0", "webarena/test/1"]
    with pytest.raises(KeyError, match="no scripted expert"):
        suite.make_expert(suite.task("0", "test", 0), None)  # type: ignore[arg-type]
