#!/usr/bin/env bash
# Installs what is missing, builds everything and runs all tests; ends with ctest's summary.
#   --format    also clang-format
#   --lint      also clang-format and clang-tidy
#   --clang     also everything and all tests by clang++
#   --sanitize  also the same tests under AddressSanitizer and UBSan
#   --tsan      also the threaded parts under ThreadSanitizer
#   --fuzz      also every fuzz target for 10 seconds (clang)
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/packages.sh
swaplab_packages doctest-dev libbenchmark-dev python3

build_and_test() {  # PRESET [AREA...]
  local preset=$1
  shift
  cmake --preset "$preset" -DSWAPLAB_TESTS=ON >/dev/null
  cmake --build "build/$preset" ${1:+--target "${@/#/test_}"}
  ctest --test-dir "build/$preset" --output-on-failure ${1:+-R "^($(IFS='|' && echo "$*"))\$"}
}

for option in "$@"; do
  case $option in
    --format) scripts/lint.sh --format-only ;;
    --lint) scripts/lint.sh ;;
    --clang)
      swaplab_packages clang
      build_and_test clang
      ;;
    --sanitize) build_and_test asan-ubsan ;;
    --tsan) build_and_test tsan experiments gpu ;;
    --fuzz) scripts/fuzz.sh 10 ;;
    *)
      echo "error: unknown option $option; expected --format, --lint, --clang, --sanitize, --tsan, --fuzz" >&2
      exit 2
      ;;
  esac
done
build_and_test release
