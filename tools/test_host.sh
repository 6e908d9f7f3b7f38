#!/bin/sh
# tools/test_host.sh HOST [PYTEST OPTIONS]: tests/HOST in an environment of its own, .venv-HOST, which has what bridges/HOST/requirements.txt
# names and not what a line "# without: ..." of it names (packages that come along and do not fit); "# alone: ..." are installed without what
# they need. "# processes: N" spreads the tests over N processes (pytest-xdist).
set -eu
cd "$(dirname "$0")/.."
host=$1
shift
list=bridges/$host/requirements.txt venv=.venv-$host
if ! cmp -s "$list" "$venv/requirements.txt"; then
    echo "making $venv"
    [ -x "$venv/bin/python" ] || python3 -m venv "$venv"
    "$venv/bin/python" -m pip install -q --disable-pip-version-check -r "$list"
    without=$(sed -n 's/^# without: //p' "$list")
    [ -z "$without" ] || "$venv/bin/python" -m pip uninstall -q -y $without
    alone=$(sed -n 's/^# alone: //p' "$list")
    [ -z "$alone" ] || "$venv/bin/python" -m pip install -q --disable-pip-version-check --no-deps $alone
    cp "$list" "$venv/requirements.txt"
fi
processes=$(sed -n 's/^# processes: //p' "$list")
exec "$venv/bin/python" -m pytest -q ${processes:+-n "$processes" --dist worksteal} "tests/$host" "$@"
