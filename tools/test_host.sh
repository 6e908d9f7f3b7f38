#!/bin/sh
# tools/test_host.sh HOST [--part] [PYTEST OPTIONS]: tests/HOST in an environment of its own, .venv-HOST, which has what bridges/HOST/requirements.txt
# or tests/HOST/requirements.txt names, and not what a line "# without: ..." of it names (packages that come along and do not fit); "# alone: ..." are
# installed without what they need. "# environment: OTHER": the environment is that of OTHER. "# processes: N" spreads the tests over N processes
# (pytest-xdist). --part: the files that "# part: ..." names, which every run of CI tests.
set -eu
cd "$(dirname "$0")/.."
host=$1
shift
own=bridges/$host/requirements.txt tests=tests/$host
[ -e "$own" ] || own=$tests/requirements.txt
if [ "${1:-}" = --part ]; then
    shift
    tests=$(sed -n 's/^# part: //p' "$own" | xargs -n 1 printf "tests/$host/%s ")
fi
list=$own environment=$(sed -n 's/^# environment: //p' "$own")
[ -z "$environment" ] || list=bridges/$environment/requirements.txt
venv=.venv-${environment:-$host}
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
processes=$(sed -n 's/^# processes: //p' "$own")
exec "$venv/bin/python" -m pytest -q ${processes:+-n "$processes" --dist worksteal} $tests "$@"
