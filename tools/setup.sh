#!/bin/sh
# Makes .venv/ from requirements.lock (every package pinned and hash-checked) and installs muse into it, editable.
# Needs python3 3.11 or later and a package index; says each thing it does. Running it again costs nothing.
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
venv=${VENV:-.venv}
say() { printf 'setup: %s\n' "$*" >&2; }

"$python" - <<'PY' || { say "needs Python 3.11 or later: set PYTHON=/path/to/python3.11"; exit 2; }
import sys
sys.exit(sys.version_info < (3, 11))
PY

stamp="$venv/.muse-setup"
want=$(cat requirements.lock pyproject.toml tools/setup.sh | cksum; "$python" -c 'import sys; print(sys.version)')
if [ -x "$venv/bin/muse" ] && [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$want" ]; then exit 0; fi

say "environment: $venv ($("$python" --version))"
if ! "$python" -m venv --clear "$venv" 2>/dev/null; then
    if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
        say "this Python has no venv module: installing python3-venv with apt-get"
        apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3-venv >/dev/null
        "$python" -m venv --clear "$venv"
    else
        say "this Python has no venv module: install it (Debian and Ubuntu: apt-get install python3-venv), then run make again"
        exit 2
    fi
fi
lock=$(mktemp)
trap 'rm -f "$lock"' EXIT
say "uv, at the version and hashes of requirements.lock"
awk '/^uv==/ {on=1} on {print} on && !/\\$/ {exit}' requirements.lock >"$lock"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r "$lock"
say "packages of requirements.lock"
install_locked() { "$venv/bin/uv" pip sync --quiet --python "$venv/bin/python" --require-hashes requirements.lock; }
# uv brings certificates of its own; behind a proxy that has others, those of the system are right, as they are for pip.
install_locked || { say "again, with the certificates of this system"; UV_SYSTEM_CERTS=1 install_locked; }
say "muse itself, editable"
"$venv/bin/uv" pip install --quiet --python "$venv/bin/python" --no-deps --no-build-isolation -e .
printf '%s' "$want" >"$stamp"
say "done: $venv/bin/muse"
