#!/bin/sh
# Fails on any weak symbol of the per-instruction-set objects that lies outside their namespaces: the linker would merge it with other
# files' copies, and an AVX-512 copy of a standard library inline function would crash an older CPU.
nm=${NM:-nm}
bad=0
for archive in "$@"; do
  found=$($nm -C --defined-only "$archive" | grep -E '^[0-9a-f]+ [WVu] ' | grep -vE ' convprim::kernels::(baseline|avx2|avx512|neon)::')
  if [ -n "$found" ]; then
    echo "$archive: weak symbols outside the kernels' namespace:"
    echo "$found"
    bad=1
  fi
  $nm --defined-only "$archive" | grep -q ' [TtRrDd] ' || { echo "$archive: no symbols read"; bad=1; }
done
if [ $bad -eq 0 ]; then echo "1 passed, 0 failed"; else echo "0 passed, 1 failed"; fi
exit $bad
