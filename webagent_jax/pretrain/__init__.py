"""How the shipped base policy, webagent-tiny, is made: generated pages, tokenizer, training."""
