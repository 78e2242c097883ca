#!/bin/sh
# Installs into a temporary prefix, then builds and runs the examples against that copy: found by
# pkg-config and by CMake, shared and static.
#
#   install.sh SOURCE_DIR BUILD_DIR PREFIX
. "$(dirname "$0")/installed.sh"
export XDG_CACHE_HOME="$root/cache"
export OMP_WAIT_POLICY=passive

cat >"$root/tiny.prototxt" <<'NET'
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 3 dim: 8 dim: 8 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param { num_output: 8 kernel_size: 3 pad: 1 } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "fc" type: "InnerProduct" bottom: "conv" top: "fc" inner_product_param { num_output: 10 } }
layer { name: "prob" type: "Softmax" bottom: "fc" top: "prob" }
NET
# 192 floats: 0.4 and -0.5 in turn.
printf '\315\314\314\076\000\000\000\277%.0s' $(seq 96) >"$root/image.bin"

# run FOLDER NAME: the three programs in a folder; their answers are those of the first that ran.
run() {
  check "$2: classify" sh -c "'$1/classify' '$root/tiny.prototxt' - '$root/image.bin' 1 >'$root/$2.out'"
  grep '^class' "$root/$2.out" >"$root/$2.classes" || true
  [ -f "$root/classes" ] || cp "$root/$2.classes" "$root/classes"
  check "$2: five classes" test "$(wc -l <"$root/$2.classes")" = 5
  check "$2: the same classes" diff "$root/classes" "$root/$2.classes"
  check "$2: primitive" "$1/primitive" winograd-4x4-3x3-vec-8 mb1ic8ih14oc8kh3ph1 2
  check "$2: refuses a scenario" sh -c "! '$1/primitive' winograd-4x4-3x3-vec-8 mb1ic8ih14oc8kh5ph2"
  check "$2: solver" "$1/solver"
}

cxx="${CXX:-c++} -std=c++20 -Wall -Wextra -Werror"
mkdir "$root/shared" "$root/static"
for example in classify primitive solver; do
  package=convprim
  [ $example != solver ] || package=pbqp
  check "compile $example" $cxx -c "$source/examples/$example.cpp" $(pkg-config --cflags $package) -o "$root/$example.o"
  check "link $example" $cxx "$root/$example.o" $(pkg-config --libs $package) "-Wl,-rpath,$libdir" \
    -o "$root/shared/$example"
  check "link $example statically" $cxx "$root/$example.o" -L"$libdir" -l:lib$package.a \
    $(pkg-config --static --libs $package) -o "$root/static/$example"
  check "$example uses the shared library" sh -c "ldd '$root/shared/$example' | grep -q '$libdir/lib$package'"
  check "$example has the static library in it" sh -c "! ldd '$root/static/$example' | grep -q lib$package"
done
run "$root/shared" pkg-config
run "$root/static" pkg-config-static

# Without pkg-config for the shared library.
for static in OFF ON; do
  check "cmake, STATIC=$static" cmake -S "$source/examples" -B "$root/cmake-$static" -DCMAKE_PREFIX_PATH="$root/prefix" \
    -DSTATIC=$static $([ $static = ON ] || echo -DCMAKE_DISABLE_FIND_PACKAGE_PkgConfig=ON)
  check "cmake --build, STATIC=$static" cmake --build "$root/cmake-$static"
  run "$root/cmake-$static" "cmake-$static"
done

# Only what the public headers declare is exported.
nm -DC --defined-only "$libdir/libconvprim.so" | cut -d' ' -f3- >"$root/symbols"
check "exports select" grep -q '^convprim::select(' "$root/symbols"
check "exports no internals" sh -c "! grep -E '^(convprim::(plan_arena|caffe|onnx|[a-z0-9]+::kernels|lay_out\(|check_plan\()|pbqp::)' '$root/symbols'"

# Each public header stands alone, without warnings and without headers other than its own and the
# standard library's.
for header in "$root"/prefix/include/convprim/*.hpp "$root"/prefix/include/pbqp/*.hpp; do
  name=$(basename "$(dirname "$header")")/$(basename "$header")
  echo "#include <$name>" >"$root/header.cpp"
  check "<$name> alone" $cxx -Wpedantic -Wshadow -fsyntax-only -I"$root/prefix/include" "$root/header.cpp"
done

echo "$passed passed, $failed failed"
[ $failed = 0 ]
