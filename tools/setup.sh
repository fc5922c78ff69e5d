#!/usr/bin/env bash
# Create .venv from the lock files, install the package in it, and provide Chromium: `make setup`.
#
#   tools/setup.sh         packages of a run
#   tools/setup.sh --dev   also packages of tests and checks
#
# Does nothing if all is up to date. PYTHON=... selects the interpreter of .venv.
set -euo pipefail
cd "$(dirname "$0")/.."
unset PYTHONDONTWRITEBYTECODE  # cache the bytecode of modules

venv=.venv
python=$venv/bin/python

stop() { printf 'setup: %s\n' "$@" >&2; exit 1; }

find_python() {
  local candidate
  for candidate in ${PYTHON:-python3.11 python3.12 python3.13 python3 python}; do
    if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null
    then
      echo "$candidate"
      return
    fi
  done
  stop "no Python 3.11, 3.12 or 3.13 found${PYTHON:+ at PYTHON=$PYTHON}." \
    "Install one (Debian: apt-get install python3.11 python3.11-venv) or set it: make PYTHON=/path/to/python"
}

make_venv() {
  local builder
  builder=$(find_python)
  echo "setup: creating $venv with $("$builder" -V)"
  "$builder" -c 'import ensurepip, venv' 2>/dev/null || stop "$builder cannot create virtual environments." \
    "Install its venv module (Debian: apt-get install python3-venv) or set another interpreter: make PYTHON=..."
  "$builder" -m venv --clear "$venv"
  pip_install --constraint requirements.lock pip  # the pip bundled with Python takes twice as long
}

# The lock files are complete, so pip resolves nothing. Prints errors, but no warnings.
pip_install() {
  "$python" -m pip --quiet --quiet --disable-pip-version-check install --no-compile "$@"
}

# Succeed if the stamp file $1 is newer than all other arguments.
is_current() {
  local stamp=$1 file
  shift
  [[ -e $stamp ]] || return 1
  for file; do [[ $file -nt $stamp ]] && return 1; done
  return 0
}

# A stamp file marks a completed step. A .venv without one is incomplete.
if [[ ! -e $venv/.installed ]] || ! "$python" -c 'import pip' 2>/dev/null; then
  make_venv
fi
if ! is_current $venv/.installed requirements.lock pyproject.toml; then
  echo "setup: installing $(grep -c == requirements.lock) packages, about a minute"
  pip_install --no-deps -r requirements.lock
  pip_install --no-deps --no-build-isolation --editable .
  touch $venv/.installed
fi
if [[ ${1:-} == --dev ]] && ! is_current $venv/.installed-dev requirements-dev.lock; then
  echo "setup: installing $(grep -c == requirements-dev.lock) packages for the tests"
  pip_install --no-deps -r requirements-dev.lock
  pip_install "$(grep ^torch== requirements-dev.lock)"  # dependencies of an accelerator build of torch
  touch $venv/.installed-dev
fi
"$python" -P webagent_jax/browser/chromium.py >/dev/null  # as a script: it imports nothing of the package
