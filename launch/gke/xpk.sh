#!/bin/bash
# One training on a TPU slice of a GKE cluster, by xpk (https://github.com/AI-Hypercomputer/xpk).
#
#   launch/gke/xpk.sh       # from any machine with xpk, after the lines marked FILL IN
#
# xpk makes the JobSet of jobset.yaml by itself; take that file where xpk is not at hand.
#
# What happens when it is interrupted. Nothing has to be done: when a host is preempted or a process
# fails, all of them are started again, --max-restarts times at most, and the run resumes from its
# workdir with the last checkpoint.
#
# What is shared. The storage is mounted on all hosts, for weights and workdir: every host writes
# its episodes and its part of a checkpoint, the first writes everything else. Logs grow line by
# line and files are replaced by renaming: take Filestore or Lustre, not a bucket. The image has
# Python with webagent_jax[tpu], the checkout as its working directory, and Chromium. See
# docs/multihost.md.

set -euo pipefail

PROJECT=my-project                      # FILL IN
ZONE=us-west4-a                         # FILL IN
CLUSTER=my-cluster                      # FILL IN: made by `xpk cluster create`
TPU_TYPE=v5litepod-16                   # FILL IN: docs/recipes.md tells what fits which
IMAGE=us-docker.pkg.dev/my-project/webagent/webagent:latest  # FILL IN
STORAGE=my-filestore                    # FILL IN: made by `xpk storage create`, mounted at /shared
WORKLOAD=webagent-r1
COMMAND="python launch/train_grpo.py --distributed \
  --config=configs/webagent_r1.py:r1 \
  --config.policy.path=/shared/runs/r1/bc/policy \
  --workdir=/shared/runs/r1/grpo"       # FILL IN

exec xpk workload create \
  --project="$PROJECT" --zone="$ZONE" --cluster="$CLUSTER" \
  --workload="$WORKLOAD" --tpu-type="$TPU_TYPE" --num-slices=1 \
  --docker-image="$IMAGE" --storage="$STORAGE" --max-restarts=50 \
  --command="$COMMAND"
