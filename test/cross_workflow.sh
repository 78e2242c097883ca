#!/bin/sh
# The whole way from one machine to another: costs taken on the target, joined with this machine's, exported and
# imported; a plan for the target made here, written as a program by the target's selector, built for it, run there, and
# compared with the run of the plan that is verified against the reference. The target is an AArch64 build under emulation, or this
# machine with a lesser instruction set.
#
# Environment: HOST_SELECTOR and TARGET_SELECTOR (commands), TARGET_CXX (compiler), TARGET_LIBRARY (libconvprim.so for
# the target), EMULATOR (what runs the target's programs), INCLUDE (public headers).
set -u
finish() {
  [ -n "${folder:-}" ] && rm -rf "$folder"
  echo "$1"
  case $1 in *" 0 failed"*) exit 0 ;; *) exit 1 ;; esac
}
if [ ! -x "$HOST_SELECTOR" ]; then
  echo "skipped: there is no $HOST_SELECTOR; scripts/setup builds it"
  finish "0 passed, 0 failed, 1 skipped"
fi
folder=$(mktemp -d)
cd "$folder" || exit 2
step() {
  what=$1
  shift
  "$@" >log 2>&1 && return
  echo "failed: $what: $*"
  tail -20 log
  finish "0 passed, 1 failed"
}

cat >net.prototxt <<'N'
name: "tiny"
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 3 dim: 16 dim: 16 } } }
layer { name: "c1" type: "Convolution" bottom: "data" top: "c1" convolution_param { num_output: 16 kernel_size: 3 pad: 1 } }
layer { name: "r1" type: "ReLU" bottom: "c1" top: "c1" }
layer { name: "p1" type: "Pooling" bottom: "c1" top: "p1" pooling_param { pool: MAX kernel_size: 2 stride: 2 } }
layer { name: "c2" type: "Convolution" bottom: "p1" top: "c2" convolution_param { num_output: 24 kernel_size: 3 pad: 1 } }
layer { name: "fc" type: "InnerProduct" bottom: "c2" top: "fc" inner_product_param { num_output: 10 } }
layer { name: "prob" type: "Softmax" bottom: "fc" top: "prob" }
N
# 768 floats: 0.5, 1, -1 and so on.
i=0
while [ $i -lt 192 ]; do
  printf '\000\000\000\077\000\000\200\077\000\000\200\277\000\000\000\000'
  i=$((i + 1))
done >input.raw

step "profile on the target" $TARGET_SELECTOR --net net.prototxt --threads 2 --profile-only --quiet --costs target.db
step "profile here" "$HOST_SELECTOR" --net net.prototxt --threads 1 --families direct,im2 --profile-only --quiet --costs host.db
step "merge" "$HOST_SELECTOR" costs merge all.db host.db target.db
step "export" "$HOST_SELECTOR" costs export all.db all.csv
step "import" "$HOST_SELECTOR" costs import copy.db all.csv
step "list" "$HOST_SELECTOR" costs list target.db
# Threads that moved meanwhile leave costs of two machines.
target=$(awk 'NR > 1 && $3 > most { most = $3; name = $1 } END { print name }' log)
for costs in all copy; do
  step "plan from $costs.db" "$HOST_SELECTOR" --net net.prototxt --costs $costs.db --target "$target" --save-plan $costs.json --quiet
done
step "the same plan from both" cmp all.json copy.json
step "run of the plan" $TARGET_SELECTOR --net net.prototxt --load-plan all.json --verify --runs 1 --quiet --input input.raw --output planned

# The sizes of workspaces in the program are the target's, so its own selector writes it.
step "emit" $TARGET_SELECTOR --net net.prototxt --load-plan all.json --emit program --runs 0 --quiet
step "build" $TARGET_CXX -std=c++20 -O1 -I"$INCLUDE" program/main.cpp program/net.cpp "$TARGET_LIBRARY" \
  -Wl,-rpath,"$(dirname "$TARGET_LIBRARY")" -o program/net
step "run" $EMULATOR program/net --weights program/weights.bin --output emitted input.raw
step "the outputs are there" test -s planned/prob.npy
step "the same outputs" cmp planned/prob.npy emitted/prob.npy
finish "1 passed, 0 failed"
