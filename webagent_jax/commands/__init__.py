"""Subcommands of `webagent`: one module each, with its flags and `main(argv)`.

The table in `cli/main.py` lists them. Heavy imports are inside `main`, so that help is fast.
"""
