#!/bin/sh
# checkconv's processes: several find what one does, pairs that passed are not run again, and one that is
# killed costs the pair that it was at.
#   checkconv_jobs.sh CHECKCONV
set -eu
checkconv=$1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
suite="--suite=short --family=depthwise,conv_1x1 --limit-gmac=0.001"

"$checkconv" $suite >"$dir/one"
"$checkconv" $suite --jobs=3 --resume="$dir/passed" >"$dir/three"
cmp "$dir/one" "$dir/three"
"$checkconv" $suite --jobs=2 --resume="$dir/passed" >"$dir/again"
grep -q 'of the pairs had passed before' "$dir/again"
pairs=$(sed -n 's/.* \([0-9]*\) pairs run.*/\1/p' "$dir/one")
[ "$(grep -c ';$' "$dir/passed")" = "$pairs" ] || { echo "the pairs that passed are not $pairs"; exit 1; }

# Seconds of work for each process, of which one is killed.
"$checkconv" --jobs=2 --threads=1 --primitive=direct-sum2d --scenario=mb1ic256ih112oc128kh3ph1 \
  --scenario=mb1ic256ih112oc129kh3ph1 >"$dir/killed" 2>&1 &
parent=$!
tries=0
busy() { # a child that has computed for a tenth of a second
  child=$(cut -d' ' -f1 /proc/$parent/task/$parent/children) && [ -n "$child" ] &&
    [ "$(cut -d' ' -f14 /proc/"$child"/stat)" -ge 10 ]
}
until busy; do
  tries=$((tries + 1))
  [ $tries -lt 200 ] || { echo "no process was begun"; exit 1; }
  sleep 0.1
done
kill -KILL "$child"
if wait $parent; then
  echo "a process was killed, and all passed"
  exit 1
fi
grep -q 'FAILED direct-sum2d .*ended its process: signal Killed' "$dir/killed" &&
  grep -q '2 pairs run' "$dir/killed" || { cat "$dir/killed"; exit 1; }
