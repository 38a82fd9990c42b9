#!/bin/sh
# All checks and tests: the whole suite on the environment's Python, and on every other Python from 3.11 to 3.14 that this
# machine has what the version can break. Says which those are; a version that is missing is declared untested.
#
# The others run: events, codec and commitment with their vectors (tests/event), fold, decide, view, the random worlds and
# stores (tests/property), stored logs of released formats and their replay (tests/golden), the stores' conformance,
# verification and exports (of tests/log), the loop and what derives a session again (tests/runtime), how the runner
# starts, whose processes are of that Python, what is imported, and a whole demo. On one Python only: what tries the
# kernel, git, disks, other programs, killed processes, the wire and the front doors, and what takes long. `WHOLE=1` runs
# all but what takes long on the others too.
#
# mypy and the import contracts run beside the first tests. One worker more than there are cores: tests wait for
# processes half of their time.
set -eu
cd "$(dirname "$0")/.."
bin=${VENV:-.venv}/bin
say() { printf 'test: %s\n' "$*"; }

need() {  # command, Debian package, what the tests use it for
    command -v "$1" >/dev/null 2>&1 && return 0
    if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
        say "installing $2 with apt-get ($3)"
        { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$2" >/dev/null; } 2>&1 | tail -2 || true
    fi
    command -v "$1" >/dev/null 2>&1 || say "no $1 here: tests of $3 say that they are skipped"
}
need rg ripgrep "grep through ripgrep"
need strace strace "system calls that fail, and counting syncs"
need bwrap bubblewrap "the other sandbox"
need tmux tmux "the screen of replay as people see it"
need cc gcc "a clock that jumps under any program"

"$bin/python" -m compileall -q src  # once, not again in every process that tests start
"$bin/ruff" format --check .
"$bin/ruff" check .
"$bin/python" tools/ratchet.py
checked=$(mktemp)
trap 'rm -f "$checked"' EXIT
( "$bin/mypy" && "$bin/lint-imports" ) >"$checked" 2>&1 &
checks=$!

core="tests/event tests/fold tests/decide tests/view tests/property tests/golden tests/runtime tests/test_config.py
tests/effect/runner/test_supervisor.py tests/effect/runner/test_peers.py tests/ui/test_imports.py
tests/log/test_catalog.py tests/log/test_conformance.py tests/log/test_export.py tests/log/test_export_check.py
tests/log/test_redact.py tests/log/test_verify.py
tests/e2e/test_demo.py::test_what_the_demo_claims_is_what_can_be_counted"
[ -n "${WHOLE:-}" ] && core=tests

main=$("$bin/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
tested="$main (whole)"
untested=""
for version in 3.11 3.12 3.13 3.14; do
    [ "$version" = "$main" ] && continue
    python=$("$bin/python" tools/find_python.py "$version") || python=""
    if [ -z "$python" ]; then untested="$untested $version"; continue; fi
    PYTHON="$python" VENV=".cache/venv-$version" sh tools/setup.sh
    say "Python $version: the core of the suite"
    # shellcheck disable=SC2086
    ".cache/venv-$version/bin/python" -m pytest -q -n 2 -m "not long" -p no:cacheprovider $core
    tested="$tested $version (core)"
done
say "tested on Python: $tested; not on this machine, so untested:${untested:- none}"
wait "$checks" || { cat "$checked"; say "mypy or the import contracts failed"; exit 1; }
tail -2 "$checked"
rm -f "$checked"
exec "$bin/python" -m pytest -n "$(($(nproc) + 1))" --dist worksteal "$@"
