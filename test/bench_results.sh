#!/bin/sh
# A bench's file of results: written, not timed again, read back; a broken line is told by its number.
#   bench_results.sh CHECKCONV
set -eu
checkconv=$1
file=$(mktemp)
errors=$(mktemp)
trap 'rm -f "$file" "$errors"' EXIT
problem=mb1ic16ih8oc16oh8kh3ph1

run() {
  "$checkconv" --bench --compare --results="$file" --reps=1 --family=direct,implicit,winograd \
    --scenario="$problem"
}
run | grep -q "^$problem:"
lines=$(wc -l <"$file")
[ "$lines" -ge 2 ] || { echo "only $lines lines of results"; exit 1; }
[ -z "$(run)" ] || { echo "a problem of the file was timed again"; exit 1; }
[ "$(wc -l <"$file")" = "$lines" ] || { echo "the file has grown"; exit 1; }
"$checkconv" --summary "$file" "$file" | grep -q "^$problem " || { echo "no summary"; exit 1; }

echo nonsense >>"$file"
if "$checkconv" --summary "$file" 2>"$errors"; then
  echo "a broken line was taken"
  exit 1
fi
grep -q ":$((lines + 1)):" "$errors" || { cat "$errors"; exit 1; }
echo "1 passed, 0 failed"
