"""Run `webagent quickstart` from this checkout; --help describes it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from webagent_jax.cli.main import main

if __name__ == "__main__":
    sys.argv[1:1] = ["quickstart"]
    main()
