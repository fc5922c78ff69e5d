r"""Import WebRL conversations as demonstrations for behavior cloning.

webagent import demos --webrl=web_policy_sft.json --workdir=runs/r1/bc
webagent train bc --config=webagent_r1:r1 --workdir=runs/r1/bc \
    --config.policy.path=weights/Qwen2.5-3B-Instruct
"""

from __future__ import annotations

from collections.abc import Sequence

from absl import flags

from webagent_jax.cli.workdir import parse_workdir

_WEBRL = flags.DEFINE_string("webrl", None, "JSON file of WebRL conversations.", required=True)


def main(argv: Sequence[str]) -> None:
    """Write the demonstrations and print the number of skipped conversations."""
    from webagent_jax import demos
    from webagent_jax.demos import webrl

    directory = parse_workdir(argv) / "demos"
    imported = webrl.load(_WEBRL.value)
    demos.write(directory, imported.demonstrations)
    print(f"{len(imported.demonstrations)} demonstrations in {directory}")
    for reason, count in imported.skipped.items():
        print(f"{count} skipped: {reason}")
