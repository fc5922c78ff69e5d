"""One check, as `doctor.examine` starts it: a config comes in and findings go out, as JSON."""

from __future__ import annotations

import dataclasses
import importlib
import json
import sys
from pathlib import Path

from webagent_jax.config import from_config_dict

if __name__ == "__main__":
    _, name, workdir = sys.argv
    told, sys.stdout = sys.stdout, sys.stderr  # libraries print what they like
    cfg = from_config_dict(json.load(sys.stdin))
    for finding in importlib.import_module(f"webagent_jax.doctor.{name}").check(cfg, Path(workdir)):
        told.write(json.dumps(dataclasses.asdict(finding)) + "\n")
        told.flush()
