"""Start of the console command `webagent`: subcommands, flags, configs and error messages."""
