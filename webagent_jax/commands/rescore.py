r"""Score the stored episodes of an evaluation under other labels of WebArena, without a browser.

webagent rescore runs/eval --labels=verified
webagent rescore runs/eval --labels=verified,lite-v2 --lite_v2_file=tasks/test.raw.json
webagent rescore runs/eval --labels=original --test_file=package:webarena/test.raw.json \
    --matching_rules=webarena

Prints one table with the success rate under each label set and the tasks whose verdict differs, and
writes rescore.json. Label sets: original, verified, lite-v2 (docs/webarena.md). Labels that check
requests or the final address need episodes with network logs: evaluate with
--config.suite.webarena.keep_network_logs=True, or with --config.suite.webarena.labels=verified.
The label set of the run is scored again if --labels lists it and a flag below changes an option.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from absl import flags

from webagent_jax.config import ConfigError
from webagent_jax.tracking import atomic_files

_LABELS = flags.DEFINE_list("labels", ["verified"], "Label sets: original, verified, lite-v2.")
_OPTIONS = {
    name: flags.DEFINE_string(name, "", f"{text}; empty for that of the run.")
    for name, text in {
        "verified_python": "Python interpreter with webarena-verified installed",
        "lite_v2_file": "test.raw.json of WebArena-Lite-v2",
        "test_file": "Task file with the original labels",
        "matching_rules": "Text comparison of the original labels, lite or webarena",
    }.items()
}


def main(argv: Sequence[str]) -> None:
    """Score the episodes, print the table and write rescore.json."""
    from webagent_jax import rescore

    if len(argv) != 2:
        raise ConfigError("name the workdir of one evaluation: webagent rescore RUN")
    run = Path(argv[1])
    overrides = {name: flag.value for name, flag in _OPTIONS.items() if flag.value}
    result = rescore.rescore(run, _LABELS.value, overrides)
    atomic_files.write_json(run / "rescore.json", rescore.to_json(result))
    print(rescore.report(result))
    print(f"Written to {run / 'rescore.json'}")
