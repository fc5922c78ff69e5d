#!/usr/bin/env bash
# Makes .venv from the lock, the package in it, and a Chromium: `make setup`.
#
#   tools/setup.sh         what a run needs
#   tools/setup.sh --dev   and what the tests and checks add
#
# Does nothing where all is in place. PYTHON=... names the interpreter to build .venv with.
set -euo pipefail
cd "$(dirname "$0")/.."
unset PYTHONDONTWRITEBYTECODE  # modules are compiled once, when first imported

venv=.venv
python=$venv/bin/python

stop() { printf 'set-up: %s\n' "$@" >&2; exit 1; }

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
    "Install one (Debian: apt-get install python3.11 python3.11-venv) or name it: make PYTHON=/path/to/python"
}

make_venv() {
  local builder
  builder=$(find_python)
  echo "set-up: making $venv with $("$builder" -V)"
  "$builder" -c 'import ensurepip, venv' 2>/dev/null || stop "$builder cannot make virtual environments." \
    "Install its venv module (Debian: apt-get install python3-venv) or name another one: make PYTHON=..."
  "$builder" -m venv --clear "$venv"
  pip_install --constraint requirements.lock pip  # the one that came with Python takes twice as long
}

# The lock is complete, so nothing is left to resolve. Errors are shown, warnings are not.
pip_install() {
  "$python" -m pip --quiet --quiet --disable-pip-version-check install --no-compile "$@"
}

is_current() {  # the stamp $1 is newer than every other file named
  local stamp=$1 file
  shift
  [[ -e $stamp ]] || return 1
  for file; do [[ $file -nt $stamp ]] && return 1; done
  return 0
}

# A stamp is written when a step has ended well. A .venv without one was left half-built.
if [[ ! -e $venv/.installed ]] || ! "$python" -c 'import pip' 2>/dev/null; then
  make_venv
fi
if ! is_current $venv/.installed requirements.lock pyproject.toml; then
  echo "set-up: installing $(grep -c == requirements.lock) packages, about a minute"
  pip_install --no-deps -r requirements.lock
  pip_install --no-deps --no-build-isolation --editable .
  touch $venv/.installed
fi
if [[ ${1:-} == --dev ]] && ! is_current $venv/.installed-dev requirements-dev.lock; then
  echo "set-up: installing $(grep -c == requirements-dev.lock) packages for the tests"
  pip_install --no-deps -r requirements-dev.lock
  pip_install "$(grep ^torch== requirements-dev.lock)"  # what a torch for accelerators brings along
  touch $venv/.installed-dev
fi
"$python" -P webagent_jax/browser/chromium.py >/dev/null  # as a file: it needs none of the package
