"""Entry point of one check: reads the config as JSON from stdin, prints results as JSON lines."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import sys
from pathlib import Path

from webagent_jax.config import from_config_dict

if __name__ == "__main__":
    _, name, workdir = sys.argv
    # Results go to a copy of stdout. Libraries and their processes print to stderr.
    stdout = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    cfg = from_config_dict(json.load(sys.stdin))
    for result in importlib.import_module(f"webagent_jax.doctor.{name}").check(cfg, Path(workdir)):
        stdout.write(json.dumps(dataclasses.asdict(result)) + "\n")
        stdout.flush()
