#!/bin/sh
# Counts instructions for each vector multiply-add in the main loops of the kernels, by disassembly:
#
#   test/instruction_counts.sh build-arm/lib/kernels/libkernels_neon.a
#   test/instruction_counts.sh build/lib/kernels/libkernels_avx512.a
#
# A main loop is the loop of a function in which multiply-adds are densest, or with @N the N-th that has any. The
# ideal has, beside them, one instruction to load each operand, or two where the instruction set loads pairs, and what
# else the loop computes and stores. Fails if a loop has more than 1.15 times the ideal, or stores more vectors than it
# should, which happens only for lack of registers. On x86 it only counts.
set -u
archive=${1:?name a library of kernels}
objdump=${OBJDUMP:-objdump}
case $archive in
  *neon*) command -v "$objdump" >/dev/null && "$objdump" -i 2>/dev/null | grep -q aarch64 || objdump=aarch64-linux-gnu-objdump ;;
esac
# Pattern of the function | what it is | ideal instructions for each multiply-add, as a formula | stores of vectors, 0
# unless given. In transforms the ideal has the additions, and a copy of each sum that a multiply-add would overwrite
# while it is still needed; values pass through memory between columns and rows.
case $archive in
  *neon*) loops='
tile<2, 8, true>|GEMM, 8 pixels x 8 channels, terms adjacent|(64 + 8 + 4) / 64
tile<2, 10, true>|GEMM, 10 x 8, terms adjacent|(80 + 10 + 4) / 80
tile<3, 7, true>|GEMM, 7 x 12, terms adjacent|(84 + 7 + 6) / 84
tile<4, 5, true>|GEMM, 5 x 16, terms adjacent|(80 + 5 + 8) / 80
tile<2, 8, false>|GEMM, 8 x 8, terms apart|(16 + 8 + 1) / 16
tile<2, 10, false>|GEMM, 10 x 8, terms apart|(20 + 10 + 1) / 20
micro<8, 2>|Winograd product, 8 tiles x 8 channels|(64 + 8 + 4) / 64
micro<10, 2>|Winograd product, 10 x 8|(80 + 10 + 4) / 80
columns<2, 12>|direct, 8 columns x 12 channels|(24 + 1 + 2) / 24
columns<3, 8>|direct, 12 columns x 8 channels|(24 + 2 + 1) / 24
tile<4, 3, 1, 8, false, false>|depthwise 3x3, 8 columns x 4 channels|(24 + 10 + 2) / 24
tile<4, 3, 2, 8, false, false>|the same at stride 2|(24 + 17 + 2) / 24
tile<4, 5, 1, 8, false, false>|depthwise 5x5|(40 + 12 + 3) / 40
square<4, 3, 1>|depthwise 3x3 by columns, 4 rows of 8|(36 + 18 + 4 + 8 + 2) / 36|8
square<4, 3, 2>|the same at stride 2|(36 + 27 + 4 + 8 + 2) / 36|8
square<4, 5, 1>|depthwise 5x5 by columns, 4 rows of 4|(100 + 40 + 4 + 8 + 4) / 100|4
Tile<4, 3, 2, 16>::input_blocks<false>@3|Winograd F(4, 3), input, columns|(12 + 7 + 6 + 6) / 12|12
Tile<4, 3, 2, 16>::input_blocks<false>@4|the same, rows|(12 + 7 + 3 + 6) / 12|12
Tile<4, 3, 2, 16>::output_blocks<false, false>@1|Winograd F(4, 3), output, columns|(3 + 3 + 5 + 2 + 6 + 4) / 3|8
Tile<4, 3, 2, 16>::output_blocks<false, false>@2|the same, rows, with limits|(3 + 3 + 9 + 2 + 8 + 3 + 4) / 3|8
Tile<6, 3, 2, 16>::input_blocks<false>@3|Winograd F(6, 3), input, columns|(22 + 2 + 9 + 8 + 8) / 22|8
Tile<6, 3, 2, 16>::input_blocks<false>@4|the same, rows|(22 + 2 + 9 + 4 + 8) / 22|8
Tile<6, 3, 2, 16>::output_blocks<false, false>@1|Winograd F(6, 3), output, columns|(5 + 5 + 12 + 3 + 8 + 6) / 5|6
Tile<6, 3, 2, 16>::output_blocks<false, false>@2|the same, rows, with limits|(5 + 5 + 18 + 3 + 12 + 4 + 6) / 5|6' ;;
  *avx512*) loops='
even<2, 14, true>|GEMM, 14 pixels x 32 channels, terms adjacent|(28 + 14 + 2) / 28
tile<2, 11, true>|GEMM, 11 x 32, terms adjacent|(22 + 11 + 2) / 22
even<2, 14, false>|GEMM, 14 x 32, terms apart|(28 + 14 + 2) / 28
micro<14, 2>|Winograd product, 14 tiles x 32 channels|(28 + 14 + 2) / 28
columns<2, 12>|direct, 32 columns x 12 channels|(24 + 12 + 2) / 24
columns<3, 8>|direct, 48 columns x 8 channels|(24 + 8 + 3) / 24
tile<16, 3, 1, 8, false, false>|depthwise 3x3, 8 columns x 16 channels|(24 + 10 + 3) / 24
tile<16, 5, 1, 8, false, false>|depthwise 5x5|(40 + 12 + 5) / 40' ;;
  *) loops='
tile<2, 6, true>|GEMM, 6 pixels x 16 channels, terms adjacent|(12 + 6 + 2) / 12
tile<2, 6, false>|GEMM, 6 x 16, terms apart|(12 + 6 + 2) / 12
micro<6, 2>|Winograd product, 6 tiles x 16 channels|(12 + 6 + 2) / 12
columns<2, 6>|direct, 16 columns x 6 channels|(12 + 6 + 2) / 12
tile<8, 3, 1, 8, false, false>|depthwise 3x3, 8 columns x 8 channels|(24 + 10 + 3) / 24
tile<8, 5, 1, 8, false, false>|depthwise 5x5|(40 + 12 + 5) / 40' ;;
esac

"$objdump" -d -C --no-show-raw-insn "$archive" | LC_ALL=C awk -v loops="$loops" -v bound="$(case $archive in *neon*) echo 1.15 ;; *) echo 0 ;; esac)" '
  function is_product(op) { return op ~ /^fml[as]$/ || op ~ /^vfn?madd.*ps$/ }
  function keep(key, products, length_, stores) {
    fma[key] = products; all[key] = length_; kept[key] = stores
  }
  # The loops of the function read last.
  function finish(   i, j, from, products, stores, best, number, inner) {
    best = number = 0
    for (i = 1; i <= count; ++i) {
      if (target[i] == "" || !(target[i] in index_of)) continue
      from = index_of[target[i]]
      if (from > i) continue
      products = stores = 0
      inner = 1
      for (j = from; j <= i; ++j) {
        if (j < i && target[j] in index_of && index_of[target[j]] >= from && index_of[target[j]] <= j) inner = 0
        products += is_product(ops[j])
        if (ops[j] ~ /^(str|stp|stur)$/ && args[j] ~ /^[qd][0-9]/) stores += ops[j] == "stp" ? 2 : 1
        stores += ops[j] ~ /^vmov[au]p[sd]$/ && args[j] ~ /%[xyz]mm[0-9]+,.*\)/
      }
      if (products == 0) continue
      if (inner) keep(name "@" ++number, products, i - from + 1, stores)
      if (products / (i - from + 1) > best) {
        best = products / (i - from + 1)
        keep(name, products, i - from + 1, stores)
      }
    }
    count = 0
    split("", index_of); split("", target)
  }
  /^[0-9a-f]+ <.*>:$/ {
    finish()
    name = $0
    sub(/^[0-9a-f]+ </, "", name); sub(/>:$/, "", name)
    gsub(/convprim::kernels::[a-z0-9]*::|\(anonymous namespace\)::/, "", name); sub(/\(.*/, "", name); sub(/^.*void /, "", name)
    next
  }
  /^ +[0-9a-f]+:/ {
    ++count
    at = $1; sub(/:$/, "", at)
    index_of[at] = count
    ops[count] = $2
    args[count] = ""
    for (i = 3; i <= NF; ++i) args[count] = args[count] " " $i
    sub(/^ /, "", args[count])
    target[count] = ""
    if ($2 ~ /^(b\.|cbn?z|tbn?z|j)/ && match($0, /[0-9a-f]+ </)) target[count] = substr($0, RSTART, RLENGTH - 2)
  }
  END {
    finish()
    n = split(loops, line, "\n")
    printf "| %-48s | %9s | %12s | %-17s | %8s |\n", "main loop", "FMA", "instructions", "for each FMA", "of ideal"
    print "|---|---|---|---|---|"
    for (i = 1; i <= n; ++i) {
      if (split(line[i], part, "|") < 3) continue
      if (!(part[1] in fma)) { print "no function " part[1]; ++failed; continue }
      split(part[3], term, /[^0-9]+/)
      ideal = 0
      for (t = 2; term[t + 1] != ""; ++t) ideal += term[t]
      ideal /= term[t]
      each = all[part[1]] / fma[part[1]]
      printf "| %-48s | %9d | %12d | %.3f, ideal %.3f | %8.3f |\n", part[2], fma[part[1]], all[part[1]], each, ideal, each / ideal
      bad = bound > 0 && (each > bound * ideal || kept[part[1]] > part[4] + 0)
      if (bad) print "too many: " part[1] ", " kept[part[1]] " stores of vectors"
      if (bad) ++failed; else ++passed
    }
    printf "%d passed, %d failed\n", passed, failed
    exit failed > 0
  }'
