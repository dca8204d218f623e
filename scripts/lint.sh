#!/usr/bin/env bash
# Formatting (clang-format) and static checks (clang-tidy) of all C++ sources; needs build/release configured.
#   --format-only  without clang-tidy, which takes about as long as a build
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/packages.sh
swaplab_packages clang-format
find trace sim policy gpu_validate experiments tests \( -name '*.cpp' -o -name '*.hpp' \) -print0 |
  xargs -0 clang-format --dry-run -Werror
echo "clang-format: ok"
[ "${1:-}" = --format-only ] && exit 0
swaplab_packages clang-tidy
find trace sim policy gpu_validate experiments -name '*.cpp' -print0 |
  xargs -0 -P "$(nproc)" -n 4 clang-tidy -p build/release --quiet 2> >(grep -v 'warnings generated' >&2)
echo "clang-tidy: ok"
