#!/bin/sh
# tools/fuzz.sh BUILD [SECONDS]: run every libFuzzer target from its committed corpus; what is new is not kept. Without SECONDS each
# makes the same 60,000 inputs every time (what CI does); with them it looks for new ones.
set -eu
build=$1
if [ -n "${2:-}" ]; then limit="-max_total_time=$2"; else limit="-runs=60000 -seed=1"; fi
found=0
for target in "$build"/bin/fuzz_*; do
    name=$(basename "$target")
    work=$(mktemp -d)
    corpus=tests/fuzz/corpus/${name#fuzz_}
    mkdir -p "$corpus"
    echo "$name: $limit"
    "$target" $limit -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 -artifact_prefix="$build/" "$work" "$corpus" \
        >"$build/$name.log" 2>&1 || { tail -40 "$build/$name.log"; exit 1; }
    grep -E "stat::number_of_executed_units|stat::average_exec_per_sec" "$build/$name.log" || true
    rm -rf "$work"
    found=$((found + 1))
done
[ $found -gt 0 ] || { echo "no fuzz targets in $build/bin"; exit 1; }
