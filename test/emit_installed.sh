#!/bin/sh
# Emitted AlexNet and GoogLeNet: built by Meson against an installed copy, their outputs the bits of
# the plan that they were made from.
#
#   emit_installed.sh SOURCE_DIR BUILD_DIR PREFIX
. "$(dirname "$0")/installed.sh"
export LD_LIBRARY_PATH="$libdir"
selector="$root/prefix/bin/selector"

# emitted NET FLOATS OUTPUTS: a plan from few measurements, its program, and the outputs of both.
emitted() {
  net="$source/data/nets/$1.prototxt"
  # Bytes 30 to 3f make floats from 0 to 0.75.
  LC_ALL=C tr -dc '\060-\077' </dev/urandom | head -c $(($2 * 4)) >"$root/$1.bin"
  check "$1: plan and program" "$selector" --net "$net" --families implicit --threads 2 --quiet --runs 0 \
    --costs "$root/costs.db" --save-plan "$root/$1.json" --emit "$root/$1"
  check "$1: loaded plan" "$selector" --net "$net" --load-plan "$root/$1.json" --quiet --runs 0 --verify \
    --input "$root/$1.bin" --output "$root/$1-out"
  check "$1: meson setup" meson setup "$root/$1/build" "$root/$1" --warnlevel=3 -Dwerror=true
  check "$1: ninja" ninja -C "$root/$1/build"
  check "$1: run" "$root/$1/build/net" "$root/$1.bin" --output "$root/$1-again"
  check "$1: five classes" test "$(grep -c ' class ' "$root/log")" = 5
  check "$1: the same bits" diff -r "$root/$1-out" "$root/$1-again"
  check "$1: outputs" test "$(ls "$root/$1-out" | wc -l)" = "$3"
}

emitted squeezenet_v1.1 $((3 * 227 * 227)) 1
emitted alexnet $((3 * 227 * 227)) 1
emitted googlenet $((3 * 224 * 224)) 1

echo "$passed passed, $failed failed"
[ $failed = 0 ]
