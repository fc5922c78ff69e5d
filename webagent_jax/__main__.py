"""Entry point of `python -m webagent_jax`, the same as the console command `webagent`."""

from webagent_jax.cli.main import main

if __name__ == "__main__":
    main()
