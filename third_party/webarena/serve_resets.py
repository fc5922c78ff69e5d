"""Reset sites over HTTP, on the machine that runs their containers.

    HOST=sites.example python serve_resets.py --listen=127.0.0.1:7565 a.env b.env

`GET /reset?site=gitlab&port=8023` runs site.sh with --reset for the replica whose file contains
GITLAB_PORT=8023, and responds with 200 when the reset is complete. Any client of the port can reset
the sites, so listen on an address that only the training machine can reach.
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
# Time limit of one reset; the suite waits for suite.webarena.reset_timeout seconds.
RESET_SECONDS = 1800


class Resets(ThreadingHTTPServer):
    """Server of reset requests; resets of one replica run one at a time.

    Args:
        address: host and port to listen on.
        env_files: files with the ports of the replicas.
        script: path of site.sh.
    """

    def __init__(self, address: tuple[str, int], env_files: list[Path], script: Path) -> None:
        super().__init__(address, Handler)
        self.env_files, self.script = env_files, script
        self.locks: dict[tuple[str, Path], threading.Lock] = defaultdict(threading.Lock)

    def env_file(self, site: str, port: str) -> Path | None:
        """Return the file of the replica with this port; None if there is none."""
        line = f"{site.upper()}_PORT={port}"
        files = (f for f in self.env_files if line in f.read_text().split())
        return next(files, None)


class Handler(BaseHTTPRequestHandler):
    """Handler of reset requests."""

    server: Resets

    def do_GET(self) -> None:
        """Reset a site and respond with the output of the script."""
        parts = urlsplit(self.path)
        query = parse_qs(parts.query)
        site, port = query.get("site", [""])[0], query.get("port", [""])[0]
        env_file = self.server.env_file(site, port) if site in SITES else None
        if parts.path != "/reset" or env_file is None:
            self._respond(404, f"no replica of {site!r} at port {port!r}\n")
            return
        with self.server.locks[site, env_file]:
            command = [str(self.server.script), str(env_file), site, "--reset"]
            try:
                process = subprocess.run(
                    command, capture_output=True, text=True, timeout=RESET_SECONDS
                )
            except subprocess.TimeoutExpired:
                self._respond(504, f"{site} was not reset within {RESET_SECONDS} s\n")
                return
        self._respond(200 if process.returncode == 0 else 500, process.stdout + process.stderr)

    def _respond(self, status: int, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main() -> None:
    """Serve reset requests until interrupted."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--listen", default="127.0.0.1:7565")
    parser.add_argument("--script", type=Path, default=Path(__file__).parent / "site.sh")
    parser.add_argument("env_files", nargs="+", type=Path)
    arguments = parser.parse_args()
    host, _, port = arguments.listen.rpartition(":")
    files = [path.resolve() for path in arguments.env_files]
    Resets((host, int(port)), files, arguments.script.resolve()).serve_forever()


if __name__ == "__main__":
    main()
