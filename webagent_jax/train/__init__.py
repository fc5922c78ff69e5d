"""Trainings: behavior cloning and M-GRPO. Both resume from their workdir."""
