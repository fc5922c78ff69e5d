"""Fake WebArena sites: login forms, a notes page, a REST API, a reset server."""

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
class LoginForm:
    """Login form of a site, with the paths, fields and cookie of the real one."""

    login_path: str  # path of the form
    action: str  # path that the form posts to
    fields: tuple[str, str]
    account_path: str  # path that requires a login
    cookie: str
    cookie_path: str = "/"


LOGIN_FORMS = {
    "shopping": LoginForm(
        "/customer/account/login/",
        "/customer/account/loginPost/",
        ("login[username]", "login[password]"),
        "/wishlist/",
        "PHPSESSID",
    ),
    "shopping_admin": LoginForm(
        "/admin",
        "/admin",
        ("login[username]", "login[password]"),
        "/admin/admin/dashboard/",
        "admin",
        "/admin",
    ),
    "reddit": LoginForm(
        "/login",
        "/login_check",
        ("_username", "_password"),
        "/user/MarvelsGrantMan136/account",
        "PHPSESSID",
    ),
    "gitlab": LoginForm(
        "/users/sign_in",
        "/users/sign_in",
        ("user[login]", "user[password]"),
        "/-/profile",
        "_gitlab_session",
    ),
}

# As in Magento, a search form and a hidden popup with a password field precede the login form, and
# scripts may enable the button late.
LOGIN_PAGE = """
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

DELAY_SCRIPT = """
<script>
  const button = document.querySelector("button");
  button.disabled = true;
  setTimeout(() => (button.disabled = false), 2000);
</script>
"""

MAP_PAGE = """
<h1>Map</h1><img class="leaflet-tile" src="{tiles}/tile/0/0/0.png">
<script>fetch("{router}/route/v1/driving/-79.9,40.4;-80,40.4").catch(() => null);</script>
"""

TILE = '<svg xmlns="http://www.w3.org/2000/svg" width="8" height="8"></svg>'

NOTES_PAGE = """
<h1>Notes of {user}</h1><ul id="notes">{notes}</ul>
<form action="/notes" method="post"><input name="text" aria-label="Note"><button>Add</button></form>
<a href="/logout">Sign out</a>
"""


@dataclass
class FakeSite:
    """Replica of a site. `status` is the response status of all requests except resets."""

    name: str
    host: str = "127.0.0.1"
    status: int = 200
    redirect_url: str = ""  # base URL of another host that "/" redirects to
    notes: list[str] = field(default_factory=list)
    sessions: dict[str, str] = field(default_factory=dict)  # user by cookie value
    num_logins: int = 0
    num_resets: int = 0
    failures_after_reset: int = 0  # number of failing requests after a reset
    slow_form: bool = False  # scripts enable the login button after two seconds
    tiles: str = ""  # base URL of the map tiles; empty: this site
    router: str = ""  # base URL of the map routes; empty: this site
    single_session: bool = False  # a login ends other sessions of its user, the default of Magento
    request_paths: list[str] = field(default_factory=list)
    # Further pages, and responses to posts (status, headers, text), by path.
    pages: dict[str, str] = field(default_factory=dict)
    posts: dict[str, tuple[int, dict[str, str], str]] = field(default_factory=dict)
    pending_failures: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        site = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                site.respond(self, {})

            def do_POST(self) -> None:
                size = int(self.headers.get("Content-Length", 0))
                body = self.rfile.read(size).decode()
                is_json = self.headers["Content-Type"] == "application/json"
                site.respond(self, json.loads(body) if is_json else parse_qs(body))

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
        self.login_form = LOGIN_FORMS.get(self.name, LOGIN_FORMS["shopping"])

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def reset(self) -> None:
        self.notes.clear()
        self.sessions.clear()
        self.num_resets += 1
        self.status, self.pending_failures = 200, self.failures_after_reset

    # --- responses -------------------------------------------------------------------------------

    def respond(self, request: Any, form: Any) -> None:
        path = urlsplit(request.path).path
        self.request_paths.append(path)
        if path == "/reset":
            self.reset()
            return self._send(request, "reset")
        if self.redirect_url and path == "/":
            return self._redirect(request, self.redirect_url)
        if self.pending_failures:
            self.pending_failures -= 1
            return self._send(request, "starting", 502)
        if self.status != 200:
            return self._send(request, "out of order", self.status)
        if request.command == "POST" and path in self.posts:
            status, headers, text = self.posts[path]
            return self._send(request, text, status, headers)
        if path in self.pages:
            return self._send(request, self.pages[path])
        if path.startswith("/rest/"):
            return self._rest(request, form)
        if path == self.login_form.action and form:
            return self._log_in(request, form)
        return self._send_page(request, path, form)

    def _send_page(self, request: Any, path: str, form: Any) -> None:
        user = self.sessions.get(self._cookie(request) or "")
        login_form = self.login_form
        match path:
            case login_form.account_path if user:
                self._send(request, "<h1>Dashboard</h1><button>Delete</button>")
            case "/admin/dashboard" | "/admin/" if user:
                self._redirect(request, login_form.account_path)
            case login_form.login_path | "/admin/dashboard" | "/admin/admin/dashboard/" | "/admin/":
                self._send(request, self._render_form())
            case login_form.account_path:
                self._redirect(request, login_form.login_path)
            case "/notes" if user and form:
                self.notes += form["text"]
                self._redirect(request, "/notes")
            case "/notes" if user:
                notes = "".join(f"<li>{html.escape(note)}</li>" for note in self.notes)
                self._send(request, NOTES_PAGE.format(user=html.escape(user), notes=notes))
            case "/logout":
                self.sessions.pop(self._cookie(request) or "", None)
                self._redirect(request, "/")
            case "/directions" if self.name == "map":
                self._send(request, MAP_PAGE.format(tiles=self.tiles, router=self.router))
            case _ if path.startswith("/tile/"):
                self._send(request, TILE, headers={"Content-Type": "image/svg+xml"})
            case _ if path.startswith("/route/v1/"):
                self._send(request, '{"code": "Ok"}', headers={"Access-Control-Allow-Origin": "*"})
            case "/" | "/about":
                self._send(request, f"<h1>{self.name}</h1><a href='/about'>About</a>")
            case _:
                self._send(request, "no such page", 404)

    def _render_form(self, error: str = "") -> str:
        user, password = self.login_form.fields
        form = LOGIN_PAGE.format(
            action=self.login_form.action,
            key=secrets.token_hex(4),
            type="email" if self.name == "shopping" else "text",
            user=user,
            password=password,
        )
        return f"<div role=alert>{error}</div>{form}{DELAY_SCRIPT if self.slow_form else ''}"

    def _log_in(self, request: Any, form: Any) -> None:
        credentials = tuple(form.get(name, [""])[0] for name in self.login_form.fields)
        if credentials != USERS[self.name] or "form_key" not in form:
            return self._send(request, self._render_form("Invalid login or password."))
        if self.single_session:
            self.sessions = {k: user for k, user in self.sessions.items() if user != credentials[0]}
        cookie = secrets.token_hex(8)
        self.sessions[cookie] = credentials[0]
        self.num_logins += 1
        header = f"{self.login_form.cookie}={cookie}; Path={self.login_form.cookie_path}; HttpOnly"
        self._redirect(request, self.login_form.account_path, {"Set-Cookie": header})

    def _rest(self, request: Any, form: Any) -> None:
        if request.path.endswith("/integration/admin/token"):
            is_valid = form == {"username": "admin", "password": "admin1234"}
            self._send(
                request, json.dumps("token-1") if is_valid else "{}", 200 if is_valid else 401
            )
        elif request.headers.get("Authorization") != "Bearer token-1":
            self._send(request, "{}", 401)
        else:
            self._send(request, json.dumps({"items": [{"increment_id": "000000191"}]}))

    def _cookie(self, request: Any) -> str | None:
        cookies = request.headers.get("Cookie", "").split("; ")
        return dict(pair.partition("=")[::2] for pair in cookies).get(self.login_form.cookie)

    def _redirect(self, request: Any, location: str, headers: dict[str, str] | None = None) -> None:
        self._send(request, "", 302, {"Location": location, **(headers or {})})

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
    """Reset server that responds immediately and has a status page, as in BrowserGym's setup.

    The sites go down at the first status request and are reset after `polls` status requests.
    """

    def __init__(self, sites: Sequence[FakeSite], polls: int = 1, fails: bool = False) -> None:
        self._sites, self._polls, self._fails = sites, polls, fails
        self._polls_left = 0  # status requests until the reset ends
        self.request_paths: list[str] = []
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, text = server.respond(self.path)
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

    def respond(self, path: str) -> tuple[int, str]:
        self.request_paths.append(path)
        if path == "/reset" and self._polls_left:
            return 418, 'Reset already running, check status <a href="/status">here</a>'
        if path == "/reset":
            self._polls_left = self._polls
            return 200, 'Reset initiated, check status <a href="/status">here</a>'
        if path != "/status":
            return 404, "Endpoint not found"
        if self._fails:
            return 500, "Error executing reset script:<p>exit status 1</p>"
        if not self._polls_left:
            return 200, "Ready for duty!"
        self._polls_left -= 1
        for site in self._sites:
            site.status = 502
            if not self._polls_left:
                site.reset()
        return 200, "Reset ongoing"


def make_row(number: int, *sites: str, start: str = "", **spec: Any) -> dict[str, Any]:
    """Return a row of a task file; `spec` contains reference answers, a URL or page targets."""
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


def page_target(url: str, *words: str) -> dict[str, Any]:
    """Return a target of program_html."""
    return {
        "url": url,
        "locator": "document.querySelector('#notes').innerText",
        "required_contents": {"must_include": list(words)},
    }
