"""Writes requirements.lock and requirements-dev.lock from pyproject.toml: `make lock`.

requirements.lock is what a run needs; requirements-dev.lock is what the `dev` extra adds to it.
pip resolves, from whatever index it is set up to use, and no index is named in the result. The
CUDA packages of a torch that is not a CPU build stay out: the set-up lets pip add them.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ACCELERATOR = re.compile(r"nvidia-|cuda-|triton$")


def resolve(requirements: Sequence[str]) -> dict[str, str]:
    """Normalized name -> version of the whole closure of `requirements`."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        command = [sys.executable, "-m", "pip", "install", "-qq", "--dry-run", "--ignore-installed"]
        subprocess.run([*command, "--report", str(report), *requirements], check=True)
        installs = json.loads(report.read_text())["install"]
    versions = {
        re.sub(r"[-_.]+", "-", item["metadata"]["name"]).lower(): item["metadata"]["version"]
        for item in installs
    }
    return {
        name: version.partition("+")[0]
        for name, version in sorted(versions.items())
        if not ACCELERATOR.match(name)
    }


def write(path: Path, title: str, versions: dict[str, str]) -> None:
    lines = [f"{name}=={version}" for name, version in versions.items()]
    path.write_text("\n".join([f"# {title}", "# Written by `make lock`, Python 3.11.", *lines, ""]))
    print(f"{path.name}: {len(lines)} packages")


def main() -> None:
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = pyproject["project"]
    extras = project["optional-dependencies"]
    runtime = [*project["dependencies"], *pyproject["build-system"]["requires"], "pip"]
    dev = [*extras["test"], *(r for r in extras["dev"] if not r.startswith(project["name"]))]

    run = resolve(runtime)
    write(ROOT / "requirements.lock", "What a run needs.", run)
    pinned = [f"{name}=={version}" for name, version in run.items()]
    added = {n: v for n, v in resolve([*pinned, *dev]).items() if n not in run}
    write(ROOT / "requirements-dev.lock", "What the tests and checks add.", added)


if __name__ == "__main__":
    main()
