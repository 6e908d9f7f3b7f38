#!/bin/bash
# tools/test_hosts.sh [HOST...]: the tests of all hosts, or of these, one host after the other; then `make parity`, which writes docs/hosts.md from
# the environments that exist. A failure does not stop what follows. Ends with a table; the status is 1 when something failed. The environments
# need 9 GB.
set -u
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- vllm mindspore torchair ascend
failed=0 rows=()
for host in "$@" parity; do
    command=(tools/test_host.sh "$host")
    [ "$host" != parity ] || command=(make parity)
    echo; echo "==== ${command[*]} ($(date +%T))"
    begin=$SECONDS word=passed
    "${command[@]}" </dev/null || { word=FAILED failed=1; }
    rows+=("$(printf '%-10s %-6s %5d s' "$host" $word $((SECONDS - begin)))")
done
echo; printf '%s\n' "${rows[@]}"
exit $failed
