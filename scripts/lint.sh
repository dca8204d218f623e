#!/usr/bin/env bash
# Formatting (clang-format) and static checks (clang-tidy) of all C++ sources.
#   --format-only  without clang-tidy, which takes about as long as a build and then looks only at what changed
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/packages.sh
swaplab_packages clang-format
find trace sim policy gpu_validate experiments tests \( -name '*.cpp' -o -name '*.hpp' \) -print0 |
  xargs -0 clang-format --dry-run -Werror
echo "clang-format: ok"
[ "${1:-}" = --format-only ] && exit 0
swaplab_packages clang-tidy python3
cmake --preset release -DSWAPLAB_TESTS=ON >/dev/null
cmake --build build/release --target swaplab_chakra_wire swaplab_commit  # headers that are generated
exec /usr/bin/python3 scripts/clang_tidy.py build/release
