#!/usr/bin/env bash
# Builds tests/fuzz/native.cpp with sanitizers, and runs it: `native.sh address|thread SECONDS`. With clang++ it is a
# libFuzzer target, guided by coverage; otherwise g++ builds it with seeded inputs. ThreadSanitizer always gets seeded
# inputs: it would report libFuzzer's own counters, which threads share.
set -euo pipefail
cd "$(dirname "$0")/../.."
sanitizer=$1 seconds=$2 build=build/fuzz/$1
mkdir -p "$build/corpus"
checks=$([ "$sanitizer" = thread ] && echo thread || echo address,undefined)
flags=(-std=c++17 -O1 -g -ffp-contract=off -Wall -Wextra -Iengine/native -fno-omit-frame-pointer -fno-sanitize-recover=all)
if [ "$sanitizer" = address ] && echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' |
  clang++ -x c++ -fsanitize=fuzzer - -o "$build/probe" 2> /dev/null; then
  compiler=clang++ link=("-fsanitize=fuzzer,$checks") flags+=("-fsanitize=fuzzer-no-link,$checks")
else
  compiler=g++ link=("-fsanitize=$checks") flags+=("-fsanitize=$checks" -DSTANDALONE)
fi
objects=()
for source in tests/fuzz/native.cpp engine/native/{sampler,votes,instructions,fill_scalar}.cpp; do
  objects+=("$build/$(basename "$source" .cpp).o")
  "$compiler" "${flags[@]}" -c "$source" -o "${objects[-1]}"
done
case $(uname -m) in
x86_64)
  "$compiler" "${flags[@]}" -mavx2 -mfma -c engine/native/fill_avx2.cpp -o "$build/fill_avx2.o"
  "$compiler" "${flags[@]}" -mavx512f -Wno-uninitialized -c engine/native/fill_avx512.cpp -o "$build/fill_avx512.o"
  objects+=("$build"/fill_avx2.o "$build"/fill_avx512.o)
  ;;
aarch64 | arm64)
  "$compiler" "${flags[@]}" -c engine/native/fill_neon.cpp -o "$build/fill_neon.o"
  objects+=("$build/fill_neon.o")
  ;;
esac
"$compiler" "${link[@]}" "${objects[@]}" -pthread -o "$build/native"
if [ "$compiler" = clang++ ]; then
  "$build/native" "$build/corpus" -max_total_time="$seconds" -max_len=4096 -print_final_stats=1 2>&1 | tail -12
else
  end=$((SECONDS + seconds)) seed=0
  while [ $SECONDS -lt $end ]; do "$build/native" 2000 $((seed++)); done
fi
