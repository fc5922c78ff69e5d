#!/bin/bash
# Train on a TPU slice of a GKE cluster with xpk (https://github.com/AI-Hypercomputer/xpk).
#
#   launch/gke/xpk.sh       # on any machine with xpk, after you edit the lines marked FILL IN
#
# xpk creates a JobSet like that of jobset.yaml; use that file if you do not have xpk. Build the image
# in the checkout (with the task files in tasks/): docker build --build-arg EXTRA=tpu -t IMAGE .
#
# Interruptions: if a VM is preempted or a process fails, all processes restart, at most
# --max-restarts times, and the run resumes from its last checkpoint.
#
# Storage: all processes mount it for weights and workdir. Each process writes its episodes and its
# part of a checkpoint; process 0 writes all other files. Files are appended to and renamed, so use
# Filestore or Lustre, not a bucket. See docs/multi_process.md.

set -euo pipefail

PROJECT=my-project                      # FILL IN
ZONE=us-east5-b                         # FILL IN
CLUSTER=my-cluster                      # FILL IN: created by `xpk cluster create`
TPU_TYPE=v6e-16                         # FILL IN: docs/sizing.md lists the models that fit
IMAGE=us-docker.pkg.dev/my-project/webagent/webagent:latest  # FILL IN
STORAGE=my-filestore                    # FILL IN: created by `xpk storage create`, mounted at /shared
WORKLOAD=webagent-r1
# FILL IN: addresses of the sites, docs/webarena.md. Each process needs its own replicas of the sites
# that tasks change: the shell of the process inserts its index.
SITES='SHOPPING=http://sites-$JOB_COMPLETION_INDEX.example:7770
       GITLAB=http://sites-$JOB_COMPLETION_INDEX.example:8023'
COMMAND="env ${SITES//$'\n'/ } python launch/train_grpo.py --distributed \
  --config=configs/webagent_r1.py:r1 \
  --config.policy.path=/shared/runs/r1/bc/policy \
  --config.engine.tensor_parallel_size=4 \
  --workdir=/shared/runs/r1/grpo"       # FILL IN

exec xpk workload create \
  --project="$PROJECT" --zone="$ZONE" --cluster="$CLUSTER" \
  --workload="$WORKLOAD" --tpu-type="$TPU_TYPE" --num-slices=1 \
  --docker-image="$IMAGE" --storage="$STORAGE" --max-restarts=50 \
  --command="$COMMAND"
