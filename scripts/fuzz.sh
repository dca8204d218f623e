#!/usr/bin/env bash
# Builds the libFuzzer targets (AddressSanitizer and UBSan) and runs each for a while; ends with a table.
#   scripts/fuzz.sh [SECONDS] [TARGET...]    60 seconds each by default, e.g. scripts/fuzz.sh 600 import_kineto
# Starts from tests/fuzz/seeds and, where the shared corpus is there ($SWAPLAB_SHARED or ../shared), from its small
# files; goes on from what earlier runs found under build/fuzz/corpus. A finding is kept under build/fuzz/findings
# and makes the script fail.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/packages.sh
swaplab_packages clang libclang-rt-dev llvm python3
seconds=${1:-60}
case $seconds in
  '' | *[!0-9]*)
    echo "error: expected a number of seconds, found '$seconds'" >&2
    exit 2
    ;;
esac
[ $# -gt 0 ] && shift
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
  for source in tests/fuzz/fuzz_*.cpp; do
    name=$(basename "$source" .cpp)
    targets+=("${name#fuzz_}")
  done
fi
cmake --preset fuzz >/dev/null
cmake --build build/fuzz --target "${targets[@]/#/fuzz_}"
exec /usr/bin/python3 scripts/run_fuzzers.py "$seconds" "${targets[@]}"
