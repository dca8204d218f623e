#!/usr/bin/env bash
# Experiment (d): the sweep, its table, the comparison, the figure and the report, all in the sweep's results
# folder. usage: run.sh [SWAPLAB] [key=value...], from the repository's root; SWAPLAB is the program
# (default build/release/swaplab).
set -euo pipefail
cd "$(dirname "$0")/../../.."
here=experiments/chameleon/d_adaptation
swaplab=${1:-build/release/swaplab}
shift || true
"$swaplab" sweep "$here/sweep.yaml" --resume "$@"
results=$(ls -td results/chameleon-adaptation-*/ | head -1)
results=${results%/}
/usr/bin/python3 "$here/table.py" "$results" | tee "$results/table.md"
"$swaplab" compare "$results" --baseline chameleon:n_layers=12 --candidate adaptive \
  --candidate chameleon:n_layers=12,detector=length --candidate static-plan:n_layers=12 | tee "$results/compare.txt"
if /usr/bin/python3 -c 'import matplotlib' 2>/dev/null; then
  /usr/bin/python3 scripts/plot.py pairs "$results" -o "$results/lost_time.png" --metric lost_ns \
    --baseline chameleon:n_layers=12 --candidate adaptive --width 6.4 --height 5
else
  echo "no figure: python3-matplotlib is missing"
fi
"$swaplab" report "$results" -o "$results/report.html"
