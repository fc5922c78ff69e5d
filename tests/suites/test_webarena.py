"""The suite on small sites and live Chromium: log-ins, turns, tabs, resets, scores, faults."""

from __future__ import annotations

import json
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.suites.webarena_sites import USERS, ResetServer, StandIn, page_holds, task
from webagent_jax.browser import BrowserPool
from webagent_jax.config import BrowserConfig, ConfigError, JudgeConfig, WebArenaConfig
from webagent_jax.suites.webarena import WebArena, map_probe, sites
from webagent_jax.suites.webarena.environment import WebArenaEnvironment
from webagent_jax.types import Action, ActionKind, InfraError, Observation

pytestmark = pytest.mark.browser

WAIT = 30.0  # seconds at most, for what happens soon
SOON = 0.3  # seconds in which what must not happen would have
ANSWER: Any = {"must_include": ["42"]}
ROWS = [
    task(0, "gitlab", reference_answers=ANSWER),
    task(1, "gitlab", reference_url="__GITLAB__/about"),
    task(2, "gitlab", start="__GITLAB__/notes", program_html=[page_holds("last", "milk")]),
    task(3, "gitlab", start="__GITLAB__/notes", program_html=[page_holds("last", "eggs")]),
    task(4, "gitlab", start="__GITLAB__/ |AND| __GITLAB__/notes", reference_answers=ANSWER),
    task(5, "gitlab", "reddit", reference_answers=ANSWER),
    task(6, "shopping", "reddit", reference_answers=ANSWER),
    task(
        7,
        "shopping",
        program_html=[
            page_holds("func:shopping_get_latest_order_url()", "milk")
            | {"locator": "document.body.innerText"}
        ],
    ),
    task(8, "gitlab", reference_answers={"fuzzy_match": ["meaning"]}),
    task(9, "gitlab", program_html=[page_holds("__GITLAB__/notes", "milk")]),
    task(10, "gitlab", start="__GITLAB__/nowhere", reference_answers=ANSWER),
    task(11, "shopping_admin", reference_answers=ANSWER),
    task(12, "reddit", reference_answers=ANSWER),
    task(13, "map", reference_answers=ANSWER),
]


@pytest.fixture(scope="module")
def pool() -> Iterator[BrowserPool]:
    config = BrowserConfig(call_timeout=60.0, navigation_timeout=60.0)
    with BrowserPool(config) as one:
        yield one


class Place:
    """Sites, the variables that name them, and suites on them."""

    def __init__(self, pool: BrowserPool, folder: Path) -> None:
        self._pool, self._folder = pool, folder
        self.closing: list[Any] = []
        self.told: list[str] = []
        self.environ: dict[str, str] = {}
        (folder / "tasks.json").write_text(json.dumps(ROWS))

    @property
    def states(self) -> Path:
        return self._folder / "states"

    def site(self, name: str, **options: Any) -> StandIn:
        """One more replica of a site."""
        site = StandIn(name, **options)
        self.closing.append(site)
        so_far = self.environ.get(name.upper(), "")
        self.environ[name.upper()] = f"{so_far} {site.address}"
        return site

    def suite(self, *names: str, **options: Any) -> WebArena:
        config = WebArenaConfig(
            test_file=str(self._folder / "tasks.json"), auth_dir=str(self.states), **options
        )
        suite = WebArena(self._pool, config, names, self.told.append, self.environ)
        self.closing.append(suite)
        return suite

    def close(self) -> None:
        for each in reversed(self.closing):
            each.close()


@pytest.fixture
def place(pool: BrowserPool, tmp_path: Path) -> Iterator[Place]:
    one = Place(pool, tmp_path)
    yield one
    one.close()


def opened(suite: WebArena, name: str) -> WebArenaEnvironment:
    return suite.make_env(suite.task(name, "test", 0))


def act(
    environment: WebArenaEnvironment, page: Observation, name: str, **action: Any
) -> Observation:
    """Acts on the element of this name: clicks it, or types `value` and sends it off."""
    kind = ActionKind.SEARCH if "value" in action else ActionKind.CLICK
    element = next(i for i, element in page.elements.items() if element.name == name)
    step = environment.step(Action(kind, element, **action))
    assert step.observation.error is None
    return step.observation


def add_note(environment: WebArenaEnvironment, note: str) -> Observation:
    return act(environment, environment.reset().observation, "Note", value=note)


class Later:
    """What another thread comes to."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._value = self._work()
        self._done.set()

    def is_there(self, soon: float = SOON) -> bool:
        return self._done.wait(soon)

    def value(self) -> Any:
        assert self._done.wait(WAIT)
        return self._value


# --- log-in ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "number"),
    [("shopping", "7"), ("shopping_admin", "11"), ("reddit", "12"), ("gitlab", "0")],
)
def test_a_site_is_signed_in_to_through_its_own_form(place: Place, name: str, number: str) -> None:
    site = place.site(name)
    opened(place.suite(number), number).close()
    states = list(place.states.iterdir())
    # At the start, and used again. Where a second log-in may end the first, it is tried.
    assert site.signed_in == len(states) == (2 if name == "shopping_admin" else 1)
    assert stat.S_IMODE(place.states.stat().st_mode) == 0o700
    for state in states:
        assert stat.S_IMODE(state.stat().st_mode) == 0o600
        assert USERS[name][1] not in state.read_text()


def test_the_episode_is_signed_in_and_a_later_run_uses_its_state(place: Place) -> None:
    site = place.site("gitlab")
    for _ in range(2):
        environment = opened(place.suite("2"), "2")
        assert "Notes of byteblaze" in environment.reset().observation.text
        environment.close()
    assert site.signed_in == 1


def test_two_sites_are_signed_in_to_together(place: Place) -> None:
    gitlab, reddit = place.site("gitlab"), place.site("reddit", host="127.0.0.2")
    environment = opened(place.suite("5"), "5")
    assert len(list(place.states.iterdir())) == 3
    environment.close()
    assert len(list(place.states.iterdir())) == 2
    assert (gitlab.signed_in, reddit.signed_in) == (1, 1)


def test_sites_that_overwrite_one_anothers_cookies_are_refused(place: Place) -> None:
    place.site("shopping")
    place.site("reddit")
    suite = place.suite("6")
    with pytest.raises(ConfigError, match="overwrite one another's cookie PHPSESSID"):
        opened(suite, "6")


def test_a_wrong_password_is_told_without_the_password(place: Place) -> None:
    place.site("gitlab")
    place.environ["WEBAGENT_GITLAB_PASSWORD"] = "not-the-one"
    with pytest.raises(ConfigError) as told:
        place.suite("0")
    assert "did not sign byteblaze in and shows 'Invalid login or password.'" in str(told.value)
    assert "WEBAGENT_GITLAB_PASSWORD" in str(told.value)
    assert "not-the-one" not in str(told.value)
    assert list(place.states.iterdir()) == []


def test_other_accounts_come_from_the_environment_and_have_states_of_their_own(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = place.site("gitlab")
    place.suite("0")
    monkeypatch.setitem(USERS, "gitlab", ("me", "secret"))
    place.environ |= {"WEBAGENT_GITLAB_USER": "me", "WEBAGENT_GITLAB_PASSWORD": "secret"}
    opened(place.suite("0"), "0").close()
    assert list(site.sessions.values()) == ["byteblaze", "me"]


def test_a_page_without_a_form_is_told(place: Place) -> None:
    site = place.site("shopping_admin")
    place.environ["SHOPPING_ADMIN"] = site.base
    with pytest.raises(ConfigError, match=f"no login form at {site.base}"):
        place.suite("11")


def test_a_form_that_waits_for_its_scripts_is_waited_for(place: Place) -> None:
    site = place.site("shopping", late=True)
    place.suite("7")
    assert site.signed_in == 1


def test_an_expired_state_is_made_anew(place: Place) -> None:
    site = place.site("gitlab")
    suite = place.suite("2")
    site.sessions.clear()
    environment = opened(suite, "2")
    assert "Notes of byteblaze" in environment.reset().observation.text
    assert site.signed_in == 2
    environment.close()


def test_a_broken_state_is_made_anew(place: Place) -> None:
    site = place.site("gitlab")
    suite = place.suite("0")
    next(place.states.iterdir()).write_text('{"cookies": [')
    opened(suite, "0").close()
    assert site.signed_in == 2


def test_signing_out_harms_nobody_else(place: Place) -> None:
    site = place.site("gitlab")
    suite = place.suite("4")
    leaving, staying = opened(suite, "4"), opened(suite, "4")
    leaving.reset()
    page = leaving.step(Action(ActionKind.SWITCH_TAB, value="1")).observation
    act(leaving, page, "Sign out")
    leaving.close()
    staying.reset()
    page = staying.step(Action(ActionKind.SWITCH_TAB, value="1")).observation
    assert "Notes of byteblaze" in page.text
    staying.close()
    opened(suite, "4").close()
    assert site.signed_in == 3  # one each, and one for whoever gets the one signed out


# --- episodes -------------------------------------------------------------------------------------


def test_an_answer_is_scored_and_none_is_none(place: Place) -> None:
    place.site("gitlab")
    environment = opened(place.suite("0"), "0")
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


def test_where_the_episode_ends_is_scored(place: Place) -> None:
    place.site("gitlab")
    environment = opened(place.suite("1"), "1")
    page = environment.reset().observation
    assert environment.compute_reward(None) == 0.0
    act(environment, page, "About")
    assert environment.compute_reward(None) == 1.0
    environment.close()


@pytest.mark.parametrize("number", ["2", "9"])  # where it is, and at an address
def test_what_a_page_holds_is_scored(place: Place, number: str) -> None:
    site = place.site("gitlab")
    environment = opened(place.suite(number), number)
    environment.reset()
    assert environment.compute_reward(None) == 0.0
    site.notes.append("milk")
    environment.reset()
    assert environment.compute_reward(None) == 1.0
    environment.close()


def test_the_newest_order_is_asked_of_the_shop(place: Place) -> None:
    site = place.site("shopping")
    environment = opened(place.suite("7"), "7")
    environment.reset()
    assert environment.compute_reward(None) == 0.0
    assert "/sales/order/view/order_id/191/" in site.asked
    environment.close()


def test_each_start_page_is_a_tab_and_the_first_is_in_front(place: Place) -> None:
    site = place.site("gitlab")
    environment = opened(place.suite("4"), "4")
    page = environment.reset().observation
    assert page.url == f"{site.base}/"
    assert "tab 1" in page.text
    other = environment.step(Action(ActionKind.SWITCH_TAB, value="1")).observation
    assert other.url == f"{site.base}/notes"
    environment.close()


def test_an_episode_reaches_its_own_replicas_alone(place: Place) -> None:
    near, far = place.site("gitlab"), place.site("gitlab")
    environment = opened(place.suite("0"), "0")
    environment.reset()
    here, other = (near, far) if "/" in near.asked[-1:] else (far, near)
    before = len(other.asked)
    script = f"() => fetch('{other.base}/about').then(() => 'reached', () => 'kept away')"
    assert environment._session.evaluate(script) == "kept away"
    assert len(other.asked) == before
    assert here.asked
    environment.close()


# --- turns and resets -----------------------------------------------------------------------------


def test_two_writing_tasks_take_turns_on_one_replica(place: Place) -> None:
    site = place.site("gitlab")
    suite = place.suite("2", "3")
    first = opened(suite, "2")
    second = Later(lambda: opened(suite, "3"))
    assert not second.is_there()
    add_note(first, "milk")
    assert first.compute_reward(None) == 1.0
    first.close()
    environment = second.value()
    add_note(environment, "eggs")
    assert environment.compute_reward(None) == 1.0
    environment.close()
    assert site.notes == ["milk", "eggs"]


def test_two_replicas_take_two_writing_tasks_at_once(place: Place) -> None:
    one, two = place.site("gitlab"), place.site("gitlab")
    suite = place.suite("2", "3")
    first, second = opened(suite, "2"), opened(suite, "3")
    add_note(first, "milk")
    add_note(second, "eggs")
    assert (first.compute_reward(None), second.compute_reward(None)) == (1.0, 1.0)
    first.close()
    second.close()
    assert sorted([one.notes, two.notes]) == [["eggs"], ["milk"]]


def test_tasks_that_only_read_are_side_by_side(place: Place) -> None:
    site = place.site("gitlab")
    suite = place.suite("0", "1")
    first, second = opened(suite, "0"), opened(suite, "1")
    first.reset(), second.reset()
    assert len(site.sessions) == 2  # each has its own
    first.close()
    second.close()


def test_a_written_replica_is_reset_before_the_next_episode(place: Place) -> None:
    site = place.site("gitlab")
    suite = place.suite("2", "3", reset_url="http://{host}:{port}/reset?site={site}")
    for name, note in (("2", "milk"), ("3", "eggs")):
        environment = opened(suite, name)
        add_note(environment, note)
        assert environment.compute_reward(None) == 1.0
        environment.close()
    assert (site.resets, site.notes) == (2, ["eggs"])
    assert site.signed_in == 3  # at the start, and after each reset


def test_sites_of_one_reset_server_are_reset_together(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sites, "_PROBE_PAUSE", 0.01)
    both = [place.site("gitlab"), place.site("reddit", host="127.0.0.2")]
    server = ResetServer(both)
    place.closing.append(server)
    suite = place.suite(
        "2", "12", reset_url=f"{server.base}/reset", reset_status_url=f"{server.base}/status"
    )
    environment, other = opened(suite, "2"), opened(suite, "12")
    assert [site.resets for site in both] == [1, 1]  # the second would end the first episode
    add_note(environment, "milk")
    assert environment.compute_reward(None) == 1.0
    environment.close()
    other.close()
    opened(suite, "12").close()
    assert [site.resets for site in both] == [2, 2]
    assert both[0].notes == []


def test_reset_status_without_reset_is_refused(place: Place) -> None:
    place.site("gitlab")
    with pytest.raises(ConfigError, match=r"reset_status_url needs suite\.webarena\.reset_url"):
        place.suite("2", reset_status_url="http://{host}/status")


# --- faults ---------------------------------------------------------------------------------------


def test_a_site_that_is_down_at_the_start_is_told(place: Place) -> None:
    place.site("gitlab", status=502)
    with pytest.raises(ConfigError, match=r"gitlab at http://127.* answered 502"):
        place.suite("0")


def test_log_in_page_is_fetched_before_the_browser_opens_it(place: Place) -> None:
    """After a flush it takes longer than browser.navigation_timeout."""
    site = place.site("gitlab")
    place.suite("0")
    assert site.asked[:4] == ["/", *["/users/sign_in"] * 3]  # the last one posts the form


def test_map_with_tiles_and_routes_is_well(place: Place) -> None:
    servers = place.site("tiles")
    place.site("map", tiles=servers.base, router=servers.base)
    opened(place.suite("13", extra_origins=(f"map={servers.origin}",)), "13").close()
    assert "/tile/0/0/0.png" in servers.asked
    assert place.told == []


@pytest.mark.parametrize("kind", ["tiles", "router"])
@pytest.mark.parametrize("fault", ["blocked", "down", "gone"])
def test_map_whose_tile_server_or_router_fails_is_refused(
    place: Place, kind: str, fault: str
) -> None:
    server = place.site("tiles", status=502 if fault == "down" else 200)
    place.site("map", **{kind: server.base})
    if fault == "gone":
        server.close()
        place.closing.remove(server)
    allowed = () if fault == "blocked" else (f"map={server.origin}",)
    lost = {"tiles": "tiles", "router": "routes"}[kind]
    cure = {"blocked": "suite.webarena.extra_origins=map=", "down": "check that server"}
    with pytest.raises(ConfigError) as told:
        place.suite("13", extra_origins=allowed)
    assert f"gets no {lost} from {server.origin}" in str(told.value)
    assert cure.get(fault, cure["down"]) in str(told.value)
    assert str(told.value).count("\n") == 0  # the other one is well


def test_map_of_another_form_is_logged(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(map_probe, "_TIMEOUT", 0.1)
    site = place.site("wikipedia")
    place.environ["MAP"] = site.base
    place.suite("13")
    assert [line.partition(" requests ")[2][:9] for line in place.told] == [
        "no tiles ",
        "no routes",
    ]


def test_a_site_that_goes_down_is_no_failure_of_the_agent(place: Place) -> None:
    site = place.site("gitlab")
    suite = place.suite("9")
    environment = opened(suite, "9")
    environment.reset()
    site.status = 500
    with pytest.raises(InfraError, match="/notes answered 500"):
        environment.compute_reward(None)
    environment.close()
    with pytest.raises(InfraError, match=r"gitlab at .* answered 500: it may still be starting"):
        opened(suite, "9")
    site.status = 200
    opened(suite, "9").close()


def test_session_that_another_log_in_ended_is_a_fault(place: Place) -> None:
    site = place.site("shopping_admin", one_session=True)
    suite = place.suite("11")
    assert [line for line in place.told if "admin_account_sharing=1" in line] == [
        f"shopping_admin at {site.address} allows one session per account: episodes at the same "
        "time need admin/security/admin_account_sharing=1, which third_party/webarena/site.sh sets"
    ]
    first = opened(suite, "11")
    first.reset()
    second = opened(suite, "11")  # another state, by another log-in
    second.reset()
    with pytest.raises(InfraError, match=r"ended the session of admin .*admin_account_sharing=1"):
        first.compute_reward("43")
    assert first.compute_reward("It is 42") == 1.0  # a success needs no session
    assert second.compute_reward("43") == 0.0
    first.close()
    second.close()


def test_sessions_side_by_side_are_no_fault(place: Place) -> None:
    place.site("shopping_admin")
    suite = place.suite("11")
    assert place.told == []
    first, second = opened(suite, "11"), opened(suite, "11")
    first.reset(), second.reset()
    assert (first.compute_reward("43"), second.compute_reward("43")) == (0.0, 0.0)
    first.close()
    second.close()


@pytest.mark.parametrize("way", ["click", "address"])
def test_agent_that_signs_out_is_scored(place: Place, way: str) -> None:
    site = place.site("gitlab")
    environment = opened(place.suite("2"), "2")
    page = environment.reset().observation
    if way == "click":
        act(environment, page, "Sign out")
    else:
        environment.step(Action(ActionKind.GOTO, value=f"{site.base}/logout"))
    assert site.sessions == {}
    assert environment.compute_reward(None) == 0.0
    environment.close()


def test_a_start_page_that_is_not_there_is_a_fault(place: Place) -> None:
    place.site("gitlab")
    environment = opened(place.suite("10"), "10")
    with pytest.raises(InfraError, match="/nowhere answered 404"):
        environment.reset()
    environment.close()


def test_a_shop_that_does_not_answer_is_a_fault(place: Place) -> None:
    place.site("shopping")
    place.environ["WEBAGENT_SHOPPING_SITE_ADMIN_PASSWORD"] = "wrong"
    environment = opened(place.suite("7"), "7")
    environment.reset()
    with pytest.raises(InfraError, match="REST API answered 401") as told:
        environment.compute_reward(None)
    assert "wrong" not in str(told.value)
    environment.close()


def test_closing_twice_gives_the_turn_back_once(place: Place) -> None:
    place.site("gitlab")
    suite = place.suite("0", "2")
    environment = opened(suite, "0")
    environment.close()
    environment.close()
    opened(suite, "2").close()


# --- what is there to play ------------------------------------------------------------------------


def test_without_a_judge_tasks_are_left_out_and_counted(place: Place) -> None:
    place.site("gitlab")
    suite = place.suite("0", "8")
    assert suite.task_names("test") == ("0",)
    assert place.told == [
        "1 of 2 test tasks need a judge and are skipped: "
        "set suite.webarena.judge.url and suite.webarena.judge.model to include them"
    ]


def test_a_judge_without_its_key_is_refused(place: Place) -> None:
    place.site("gitlab")
    judge = JudgeConfig(url="http://127.0.0.1:1/v1", model="m", api_key_env="JUDGE_KEY")
    with pytest.raises(ConfigError, match=r"api_key_env='JUDGE_KEY' is not set"):
        place.suite("8", judge=judge)
    place.environ["JUDGE_KEY"] = "k"
    assert place.suite("8", judge=judge).task_names("test") == ("8",)


def test_tries_at_a_task_have_names_of_their_own(place: Place) -> None:
    place.site("gitlab")
    suite = place.suite("0", "1")
    ids = [suite.task("1", "test", index).id for index in range(3)]
    assert ids == ["webarena/test/1", "webarena/test/1/1", "webarena/test/1/2"]
    assert [each.id for each in suite.tasks("test")] == ["webarena/test/0", "webarena/test/1"]
    with pytest.raises(KeyError, match="no scripted expert"):
        suite.make_expert(suite.task("0", "test", 0), None)  # type: ignore[arg-type]
