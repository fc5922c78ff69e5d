"""Resets sites over HTTP, on the machine that runs their containers.

    HOST=sites.example python serve_resets.py --listen=127.0.0.1:7565 a.env b.env

`GET /reset?site=gitlab&port=8023` runs site.sh with --reset for the replica whose file says
GITLAB_PORT=8023, and answers 200 when it is through. Whoever reaches the port can reset the sites:
leave it on an address that only the training machine reaches.
"""

from __future__ import annotations

import argparse
import subprocess
import threading
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

SITES = ("shopping", "shopping_admin", "reddit", "gitlab")
SECONDS = 1800  # for one reset; the suite waits for suite.webarena.reset_timeout of them


class Resets(ThreadingHTTPServer):
    """Knows the replicas; one reset of each at a time."""

    def __init__(self, address: tuple[str, int], env_files: list[Path], script: Path) -> None:
        super().__init__(address, Handler)
        self.env_files, self.script = env_files, script
        self.locks: dict[tuple[str, Path], threading.Lock] = defaultdict(threading.Lock)

    def env_file(self, site: str, port: str) -> Path | None:
        line = f"{site.upper()}_PORT={port}"
        found = (f for f in self.env_files if line in f.read_text().split())
        return next(found, None)


class Handler(BaseHTTPRequestHandler):
    server: Resets

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        asked = parse_qs(parts.query)
        site, port = asked.get("site", [""])[0], asked.get("port", [""])[0]
        env_file = self.server.env_file(site, port) if site in SITES else None
        if parts.path != "/reset" or env_file is None:
            self._say(404, f"no replica of {site!r} at port {port!r}\n")
            return
        with self.server.locks[site, env_file]:
            command = [str(self.server.script), str(env_file), site, "--reset"]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
            except subprocess.TimeoutExpired:
                self._say(504, f"{site} was not reset within {SECONDS} s\n")
                return
        self._say(200 if done.returncode == 0 else 500, done.stdout + done.stderr)

    def _say(self, status: int, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    flags.add_argument("--listen", default="127.0.0.1:7565")
    flags.add_argument("--script", type=Path, default=Path(__file__).parent / "site.sh")
    flags.add_argument("env_files", nargs="+", type=Path)
    given = flags.parse_args()
    host, _, port = given.listen.rpartition(":")
    files = [path.resolve() for path in given.env_files]
    Resets((host, int(port)), files, given.script.resolve()).serve_forever()


if __name__ == "__main__":
    main()
