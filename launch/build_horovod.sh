#!/bin/sh
# Builds Horovod for the TensorFlow of a Python environment and installs it there; see docs/horovod.md.
#
#   launch/build_horovod.sh [--gpu | --prefer-gpu] [--python PATH] [--output DIR] [--no-install]
#
# This file only finds the Python to build for: --python, else the active environment, else .venv of
# this checkout, else python3. The work is done by launch/horovod_build, run by that very Python.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)

python=
previous=
for argument in "$@"; do
    case $argument in --python=*) python=${argument#--python=} ;; esac
    if [ "$previous" = --python ]; then python=$argument; fi
    previous=$argument
done
if [ -z "$python" ]; then
    if [ -n "${VIRTUAL_ENV:-}" ]; then python=$VIRTUAL_ENV/bin/python
    elif [ -x "$here/../.venv/bin/python" ]; then python=$here/../.venv/bin/python
    else python=python3
    fi
fi

if ! command -v "$python" >/dev/null 2>&1; then
    echo "build_horovod: error: there is no Python at $python; give one with --python PATH" >&2
    exit 2
fi
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "build_horovod: error: $python is older than Python 3.11; give another with --python PATH" >&2
    exit 2
fi
exec "$python" "$here/horovod_build" "$@"
