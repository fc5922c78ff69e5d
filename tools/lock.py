"""Write requirements.lock and requirements-dev.lock from pyproject.toml: `make lock`.

requirements.lock contains the packages of a run, requirements-dev.lock those that the `dev` extra
adds. pip resolves versions from its configured index; the files name no index. They exclude the
CUDA packages of torch, which tools/setup.sh installs if the torch build needs them.
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
    """Return the versions of all packages that `requirements` need, by normalized name."""
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
    """Write a lock file."""
    lines = [f"{name}=={version}" for name, version in versions.items()]
    path.write_text("\n".join([f"# {title}", "# Written by `make lock`, Python 3.11.", *lines, ""]))
    print(f"{path.name}: {len(lines)} packages")


def main() -> None:
    """Write both lock files."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = pyproject["project"]
    extras = project["optional-dependencies"]
    runtime = [*project["dependencies"], *pyproject["build-system"]["requires"], "pip"]
    dev = [*extras["test"], *(r for r in extras["dev"] if not r.startswith(project["name"]))]

    run_versions = resolve(runtime)
    write(ROOT / "requirements.lock", "Packages of a run.", run_versions)
    pins = [f"{name}=={version}" for name, version in run_versions.items()]
    all_versions = resolve([*pins, *dev])
    dev_versions = {n: v for n, v in all_versions.items() if n not in run_versions}
    write(ROOT / "requirements-dev.lock", "Additional packages of tests and checks.", dev_versions)


if __name__ == "__main__":
    main()
