#!/bin/sh
# A first corpus for fuzz_pbqp: pbqp_seeds.sh PBQP FOLDER, where PBQP is the pbqp command.
set -e
pbqp=$1
mkdir -p "$2"
cd "$2"
for kind in chain resnet nasnet dense; do
  "$pbqp" generate $kind.tmp --kind $kind --nodes 5 --options 6 --layouts 3 --seed 3 --weights --infinite 0.2
  (printf '\000'; cat $kind.tmp) > $kind.text
  (printf '\001'; "$pbqp" convert $kind.tmp - --to json) > $kind.json
  (printf '\002'; "$pbqp" convert $kind.tmp - --to wcsp) > $kind.wcsp
done
"$pbqp" generate dense.tmp --kind dense --nodes 5 --options 6 --layouts 3 --seed 3
for memory in 0 100; do
  "$pbqp" solve dense.tmp --certificate cert.tmp --memory $memory --quiet > /dev/null 2>&1
  (printf '\003'; cat cert.tmp) > $memory.cert
done
rm ./*.tmp
