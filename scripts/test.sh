#!/usr/bin/env bash
# Installs what is missing, builds everything and runs all tests; ends with ctest's summary.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/packages.sh
swaplab_packages doctest-dev libbenchmark-dev python3 clang-format
cmake --preset release -DSWAPLAB_BENCH=ON >/dev/null
cmake --build build/release
cmake --preset asan-ubsan >/dev/null
cmake --build build/asan-ubsan
cmake --preset test >/dev/null
cmake --build build/test
# The same tests under AddressSanitizer and UBSan, then plain.
ctest --test-dir build/asan-ubsan --output-on-failure
ctest --test-dir build/test --output-on-failure
