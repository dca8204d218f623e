#!/usr/bin/env bash
# Installs what is missing, builds everything and runs all tests; ends with ctest's summary.
# --sanitize first runs the same tests under AddressSanitizer and UBSan (about as long again).
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/packages.sh
swaplab_packages doctest-dev libbenchmark-dev python3
cmake --preset release -DSWAPLAB_BENCH=ON >/dev/null
cmake --build build/release
if [ "${1:-}" = --sanitize ]; then
  cmake --preset asan-ubsan >/dev/null
  cmake --build build/asan-ubsan
  ctest --test-dir build/asan-ubsan --output-on-failure
fi
cmake --preset test >/dev/null
cmake --build build/test
ctest --test-dir build/test --output-on-failure
