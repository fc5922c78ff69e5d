"""Training loops of behavior cloning and M-GRPO, which resume from their workdir."""
