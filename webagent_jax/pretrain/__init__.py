"""Training of webagent-tiny, the base policy in this package: pages, tasks, tokenizer, training."""
