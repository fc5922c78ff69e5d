"""Import WebRL conversations as demonstrations for behavior cloning.

python launch/import_demos.py --webrl=web_policy_sft.json --workdir=runs/r1/bc
python launch/train_bc.py --config=configs/webagent_r1.py:r1 --workdir=runs/r1/bc \
    --config.policy.path=weights/Qwen2.5-3B-Instruct
"""

from __future__ import annotations

from collections.abc import Sequence

from absl import app, flags

from webagent_jax import cli, demos
from webagent_jax.demos import webrl

_WEBRL = flags.DEFINE_string("webrl", None, "JSON file of WebRL conversations.", required=True)


def main(argv: Sequence[str]) -> None:
    """Write the demonstrations and print the number of skipped conversations."""
    directory = cli.parse_workdir(argv) / "demos"
    try:
        imported = webrl.load(_WEBRL.value)
        demos.write(directory, imported.demonstrations)
    except (demos.DemosError, OSError) as error:
        raise app.UsageError(str(error)) from error
    print(f"{len(imported.demonstrations)} demonstrations in {directory}")
    for reason, count in imported.skipped.items():
        print(f"{count} skipped: {reason}")


if __name__ == "__main__":
    app.run(main)
