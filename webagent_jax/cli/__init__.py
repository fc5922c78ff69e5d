"""Console command `webagent`: subcommands, flags, configs and error messages."""
