"""Tests of https sites whose certificates Chromium does not trust."""

from __future__ import annotations

import http.server
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from webagent_jax.browser import BrowserPool
from webagent_jax.config import BrowserConfig
from webagent_jax.types import InfraError

pytestmark = pytest.mark.browser


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<button>Sign in</button>")

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def origin(tmp_path: Path) -> Iterator[str]:
    """Address of an https site with a self-signed certificate, without the scheme."""
    subprocess.run(
        "openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 2 "
        "-subj /CN=localhost".split(),
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_self_signed_certificate_is_accepted_only_with_the_option(origin: str) -> None:
    with (
        BrowserPool(BrowserConfig()) as pool,
        pool.session(origins=[origin]) as session,
        pytest.raises(InfraError, match="ERR_CERT_AUTHORITY_INVALID"),
    ):
        session.goto(f"https://{origin}/")
    config = BrowserConfig(ignore_https_errors=True)
    with BrowserPool(config) as pool, pool.session(origins=[origin]) as session:
        session.goto(f"https://{origin}/")
        assert session.observe().text.startswith("button Sign in")
