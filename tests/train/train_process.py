"""Process of a small M-GRPO run.

python -m tests.train.train_process WORKDIR DEVICES [PORT NUM_PROCESSES PROCESS_ID]
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import jax
from absl import flags

from configs import quickstart
from webagent_jax import distributed
from webagent_jax.train.grpo import train_grpo

_SMOKE = quickstart.get_config("smoke")
CFG = replace(
    _SMOKE,
    mesh=replace(_SMOKE.mesh, microbatch_rows_per_device=1),
    engine=replace(_SMOKE.engine, slots=4),
    grpo=replace(
        _SMOKE.grpo,
        updates=5,
        tasks_per_update=2,
        minibatches=1,
        filter_groups=False,
        # Most groups of such a small run have equal rewards; this estimator trains on them.
        advantage_estimator="exponential",
        policy_loss="logp",
        optimizer=replace(_SMOKE.grpo.optimizer, learning_rate=1e-3, warmup_fraction=0.0),
    ),
)


def main(
    workdir: str,
    devices: str,
    port: str = "",
    num_processes: str = "0",
    process_id: str = "-1",
) -> None:
    jax.config.update("jax_num_cpu_devices", int(devices))
    options = (
        [
            f"--coordinator_address=localhost:{port}",
            f"--num_processes={num_processes}",
            f"--process_id={process_id}",
        ]
        if port
        else []
    )
    flags.FLAGS(["train_process", *options])
    with distributed.initialized():
        train_grpo(CFG, Path(workdir))


if __name__ == "__main__":
    main(*sys.argv[1:])
