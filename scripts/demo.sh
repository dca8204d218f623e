#!/usr/bin/env bash
# Installs what is missing, builds swaplab and compares policies on the bundled GPT recordings.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/packages.sh
swaplab_packages
cmake --preset release -DSWAPLAB_BENCH=OFF -DSWAPLAB_TESTS=OFF >/dev/null
cmake --build build/release --target swaplab
echo
echo "\$ build/release/swaplab run --trace configs/traces/gpt2_medium.jsonl.gz --machine h100-pcie5 --iterations 8 --budget 0.5x,0.7x,0.9x --policy none,lru,size,next-use,offload-activations:fallback=lru,foresight"
build/release/swaplab run --trace configs/traces/gpt2_medium.jsonl.gz --machine h100-pcie5 --iterations 8 \
  --budget 0.5x,0.7x,0.9x --policy none,lru,size,next-use,offload-activations:fallback=lru,foresight
