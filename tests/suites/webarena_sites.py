"""Small sites in the place of WebArena's: their log-in forms, a page to write on, a REST API."""

from __future__ import annotations

import html
import http.server
import json
import secrets
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

USERS = {
    "shopping": ("emma.lopez@gmail.com", "Password.123"),
    "shopping_admin": ("admin", "admin1234"),
    "reddit": ("MarvelsGrantMan136", "test1234"),
    "gitlab": ("byteblaze", "hello1234"),
}


@dataclass(frozen=True)
class Kind:
    """How a site is signed in to, as on the real one."""

    form: str  # page of the form
    action: str  # where it is posted to
    fields: tuple[str, str]
    inside: str  # page of the signed-in user
    cookie: str
    cookie_path: str = "/"


KINDS = {
    "shopping": Kind(
        "/customer/account/login/",
        "/customer/account/loginPost/",
        ("login[username]", "login[password]"),
        "/wishlist/",
        "PHPSESSID",
    ),
    "shopping_admin": Kind(
        "/admin",
        "/admin",
        ("login[username]", "login[password]"),
        "/admin/admin/dashboard/",
        "admin",
        "/admin",
    ),
    "reddit": Kind(
        "/login",
        "/login_check",
        ("_username", "_password"),
        "/user/MarvelsGrantMan136/account",
        "PHPSESSID",
    ),
    "gitlab": Kind(
        "/users/sign_in",
        "/users/sign_in",
        ("user[login]", "user[password]"),
        "/-/profile",
        "_gitlab_session",
    ),
}

# Before the form stand a search and a popup with a password that nobody sees, as in Magento; and as
# there the button may wait for scripts.
FORM = """
<form action="/search"><input type="text" name="q" placeholder="Search"></form>
<div style="display: none"><form><input type="email"><input type="password"></form></div>
<form action="{action}" method="post">
  <input type="hidden" name="form_key" value="{key}">
  <label>User <input type="{type}" name="{user}"></label>
  <label>Password <input type="password" name="{password}"></label>
  <label><input type="checkbox" name="remember"> Remember me</label>
  <button>Sign in</button>
</form>
"""

LATE = """
<script>
  const button = document.querySelector("button");
  button.disabled = true;
  setTimeout(() => (button.disabled = false), 2000);
</script>
"""

MAP = """
<h1>Map</h1><img class="leaflet-tile" src="{tiles}/tile/0/0/0.png">
<script>fetch("{router}/route/v1/driving/-79.9,40.4;-80,40.4").catch(() => null);</script>
"""

TILE = '<svg xmlns="http://www.w3.org/2000/svg" width="8" height="8"></svg>'

NOTES = """
<h1>Notes of {user}</h1><ul id="notes">{notes}</ul>
<form action="/notes" method="post"><input name="text" aria-label="Note"><button>Add</button></form>
<a href="/logout">Sign out</a>
"""


@dataclass
class StandIn:
    """One replica of a site. `status` is what it answers to everything but a reset."""

    name: str
    host: str = "127.0.0.1"
    status: int = 200
    sends_on_to: str = ""  # a base URL that is not its own
    notes: list[str] = field(default_factory=list)
    sessions: dict[str, str] = field(default_factory=dict)  # user by cookie
    signed_in: int = 0  # how often
    resets: int = 0
    unwell_after_reset: int = 0  # requests it fails once reset, as a site that starts
    late: bool = False  # the log-in form takes its time
    tiles: str = ""  # a base URL that a map loads its tiles from; empty: from itself
    router: str = ""  # ... and its routes
    one_session: bool = False  # a log-in ends the other sessions of its user, as Magento's default
    asked: list[str] = field(default_factory=list)
    unwell: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        site = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                site.answer(self, {})

            def do_POST(self) -> None:
                size = int(self.headers.get("Content-Length", 0))
                body = self.rfile.read(size).decode()
                is_json = self.headers["Content-Type"] == "application/json"
                site.answer(self, json.loads(body) if is_json else parse_qs(body))

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer((self.host, 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )
        self._thread.start()
        self.origin = f"{self.host}:{self._server.server_port}"
        self.base = f"http://{self.origin}"
        self.address = self.base + ("/admin" if self.name == "shopping_admin" else "")
        self.kind = KINDS.get(self.name, KINDS["shopping"])

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def reset(self) -> None:
        self.notes.clear()
        self.sessions.clear()
        self.resets += 1
        self.status, self.unwell = 200, self.unwell_after_reset

    # --- what it answers -------------------------------------------------------------------------

    def answer(self, request: Any, form: Any) -> None:
        path = urlsplit(request.path).path
        self.asked.append(path)
        if path == "/reset":
            self.reset()
            return self._send(request, "reset")
        if self.sends_on_to and path == "/":
            return self._redirect(request, self.sends_on_to)
        if self.unwell:
            self.unwell -= 1
            return self._send(request, "starting", 502)
        if self.status != 200:
            return self._send(request, "out of order", self.status)
        if path.startswith("/rest/"):
            return self._rest(request, form)
        if path == self.kind.action and form:
            return self._log_in(request, form)
        return self._page(request, path, form)

    def _page(self, request: Any, path: str, form: Any) -> None:
        user = self.sessions.get(self._cookie(request) or "")
        kind = self.kind
        match path:
            case kind.inside if user:
                self._send(request, "<h1>Dashboard</h1><button>Delete</button>")
            case "/admin/dashboard" | "/admin/" if user:
                self._redirect(request, kind.inside)
            case kind.form | "/admin/dashboard" | "/admin/admin/dashboard/" | "/admin/":
                self._send(request, self._form())
            case kind.inside:
                self._redirect(request, kind.form)
            case "/notes" if user and form:
                self.notes += form["text"]
                self._redirect(request, "/notes")
            case "/notes" if user:
                notes = "".join(f"<li>{html.escape(note)}</li>" for note in self.notes)
                self._send(request, NOTES.format(user=html.escape(user), notes=notes))
            case "/logout":
                self.sessions.pop(self._cookie(request) or "", None)
                self._redirect(request, "/")
            case "/directions" if self.name == "map":
                self._send(request, MAP.format(tiles=self.tiles, router=self.router))
            case _ if path.startswith("/tile/"):
                self._send(request, TILE, headers={"Content-Type": "image/svg+xml"})
            case _ if path.startswith("/route/v1/"):
                self._send(request, '{"code": "Ok"}', headers={"Access-Control-Allow-Origin": "*"})
            case "/" | "/about":
                self._send(request, f"<h1>{self.name}</h1><a href='/about'>About</a>")
            case _:
                self._send(request, "no such page", 404)

    def _form(self, complaint: str = "") -> str:
        user, password = self.kind.fields
        form = FORM.format(
            action=self.kind.action,
            key=secrets.token_hex(4),
            type="email" if self.name == "shopping" else "text",
            user=user,
            password=password,
        )
        return f"<div role=alert>{complaint}</div>{form}{LATE if self.late else ''}"

    def _log_in(self, request: Any, form: Any) -> None:
        given = tuple(form.get(name, [""])[0] for name in self.kind.fields)
        if given != USERS[self.name] or "form_key" not in form:
            return self._send(request, self._form("Invalid login or password."))
        if self.one_session:
            self.sessions = {k: user for k, user in self.sessions.items() if user != given[0]}
        cookie = secrets.token_hex(8)
        self.sessions[cookie] = given[0]
        self.signed_in += 1
        header = f"{self.kind.cookie}={cookie}; Path={self.kind.cookie_path}; HttpOnly"
        self._redirect(request, self.kind.inside, {"Set-Cookie": header})

    def _rest(self, request: Any, form: Any) -> None:
        if request.path.endswith("/integration/admin/token"):
            right = form == {"username": "admin", "password": "admin1234"}
            self._send(request, json.dumps("token-1") if right else "{}", 200 if right else 401)
        elif request.headers.get("Authorization") != "Bearer token-1":
            self._send(request, "{}", 401)
        else:
            self._send(request, json.dumps({"items": [{"increment_id": "000000191"}]}))

    def _cookie(self, request: Any) -> str | None:
        cookies = request.headers.get("Cookie", "").split("; ")
        return dict(pair.partition("=")[::2] for pair in cookies).get(self.kind.cookie)

    def _redirect(self, request: Any, to: str, headers: dict[str, str] | None = None) -> None:
        self._send(request, "", 302, {"Location": to, **(headers or {})})

    def _send(
        self, request: Any, text: str, status: int = 200, headers: dict[str, str] | None = None
    ) -> None:
        body = text.encode()
        request.send_response(status)
        request.send_header("Content-Length", str(len(body)))
        for name, value in ({"Content-Type": "text/html; charset=utf-8"} | (headers or {})).items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(body)


class ResetServer:
    """A reset server that answers at once and has a status, as BrowserGym's set-up scripts start.

    The sites go down with the first look at the status, and come up anew after `polls` of them.
    """

    def __init__(self, sites: Sequence[StandIn], polls: int = 1, fails: bool = False) -> None:
        self._sites, self._polls, self._fails = sites, polls, fails
        self._left = 0  # polls until the reset is done
        self.asked: list[str] = []
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, text = server.answer(self.path)
                self.send_response(status)
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )
        self._thread.start()
        self.base = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def answer(self, path: str) -> tuple[int, str]:
        self.asked.append(path)
        if path == "/reset" and self._left:
            return 418, 'Reset already running, check status <a href="/status">here</a>'
        if path == "/reset":
            self._left = self._polls
            return 200, 'Reset initiated, check status <a href="/status">here</a>'
        if path != "/status":
            return 404, "Endpoint not found"
        if self._fails:
            return 500, "Error executing reset script:<p>exit status 1</p>"
        if not self._left:
            return 200, "Ready for duty!"
        self._left -= 1
        for site in self._sites:
            site.status = 502
            if not self._left:
                site.reset()
        return 200, "Reset ongoing"


def task(number: int, *sites: str, start: str = "", **spec: Any) -> dict[str, Any]:
    """A row of a task file, judged by what is given: an answer, an address, a page."""
    types = {
        "reference_answers": "string_match",
        "reference_url": "url_match",
        "program_html": "program_html",
    }
    return {
        "task_id": number,
        "sites": list(sites),
        "start_url": start or f"__{sites[0].upper()}__/",
        "storage_state": None,
        "intent": f"Do number {number}",
        "require_reset": False,
        "eval": {"eval_types": [types[name] for name in spec], **spec},
    }


def page_holds(url: str, *words: str) -> dict[str, Any]:
    """A target of program_html."""
    return {
        "url": url,
        "locator": "document.querySelector('#notes').innerText",
        "required_contents": {"must_include": list(words)},
    }
