# All targets work from a fresh clone; `make help` lists them.

SHELL := /bin/bash
PY := .venv/bin/python
ARGS ?=
export PYTHON
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup quickstart test slowtest lint docs format lock clean

help:  ## list of targets
	@sed -nE 's/^([a-z]+):.*## (.*)/  make \1|\2/p' $(MAKEFILE_LIST) | column -t -s '|'

setup:  ## .venv from the lock files, and Chromium; does nothing if all is up to date
	@tools/setup.sh

quickstart: setup  ## BC, M-GRPO and evaluations; ARGS="--config.grpo.updates=10"
	$(PY) launch/quickstart.py --config=configs/quickstart.py --workdir=runs/quickstart $(ARGS)

# Tests wait for browsers, so two cores are busy with three workers.
test: lint  ## lint and the tests of CI
	$(PY) -m pytest -m "not slow" -n 3 --dist loadfile --no-loadscope-reorder $(ARGS)

slowtest: .dev  ## slow tests: every expert on five seeds
	$(PY) -m pytest -m slow $(ARGS)

lint: .dev  ## ruff, mypy, import-linter, docstring openings and names, links and tables of docs, Dockerfile
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	$(PY) -m mypy webagent_jax tools/benchmarks tools/results $(wildcard tools/*.py launch/*.py)
	.venv/bin/lint-imports
	$(PY) tools/check_prose.py
	$(PY) tools/redraw_results.py --check
	$(PY) -m mkdocs build --strict
	.venv/bin/hadolint Dockerfile

docs: .dev  ## documentation site in build/site
	$(PY) -m mkdocs build --strict

format: .dev  ## ruff fixes and formatting
	$(PY) -m ruff check --fix
	$(PY) -m ruff format

lock: setup  ## requirements*.lock from pyproject.toml (Python 3.11)
	$(PY) tools/lock.py

clean:  ## remove .venv and caches; keep runs/
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .import_linter_cache build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: .dev
.dev:
	@tools/setup.sh --dev
