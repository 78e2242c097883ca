#!/bin/sh
# Load, select, run, destroy under valgrind: no invalid access, no use of undefined values, nothing
# lost. Skipped where valgrind is missing.
#
#   memcheck.sh PROGRAM [ARGUMENT...]
set -u
if ! command -v valgrind >/dev/null; then
  echo "skipped: no valgrind here"
  echo "0 passed, 0 failed, 1 skipped"
  exit 77
fi
# valgrind knows no AVX-512.
[ "$(uname -m)" != x86_64 ] || export CONVPRIM_ISA=avx2
export OMP_NUM_THREADS=1
exec valgrind --quiet --error-exitcode=9 --leak-check=full --errors-for-leak-kinds=definite \
  --show-leak-kinds=definite "$@"
