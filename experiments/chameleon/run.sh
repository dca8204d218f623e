#!/bin/sh
# Runs one experiment: sweep, statistics, report, table and figure.
#
#   experiments/chameleon/run.sh a|b|c|d|e|f [--swaplab PROGRAM] [--out FOLDER] [--jobs N] [--quick]
#
#   a  profiling overhead          b  largest model on one device     c  time against recomputation, parallelism
#   e  ablations                   f  where swapping pays             d  adaptation to changes
#
# --out: where results go (default results/chameleon-LETTER); --quick: a small version of the same commands.
# Needs a release build (default build/release/swaplab). Without matplotlib there is no figure; the reason is printed.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
python=/usr/bin/python3
swaplab=$root/build/release/swaplab
letter= out= quick= jobs=$(getconf _NPROCESSORS_ONLN)
usage() { sed -n '2,10s/^# \{0,1\}//p' "$0"; }
need_value() {
  [ $# -ge 2 ] || { echo "error: $1 needs a value" >&2; exit 2; }
}
while [ $# -gt 0 ]; do
  case $1 in
    a | b | c | d | e | f) letter=$1 ;;
    --swaplab) need_value "$@"; swaplab=$2; shift ;;
    --out) need_value "$@"; out=$2; shift ;;
    --jobs) need_value "$@"; jobs=$2; shift ;;
    --quick) quick=1 ;;
    -h | --help) usage; exit 0 ;;
    *) echo "error: unknown argument '$1'" >&2; usage >&2; exit 2 ;;
  esac
  shift
done
[ -n "$letter" ] || { usage >&2; exit 2; }
[ -x "$swaplab" ] || { echo "error: no program at $swaplab; build it, or --swaplab PROGRAM" >&2; exit 2; }
swaplab=$(realpath "$swaplab")
case $jobs in '' | *[!0-9]* | 0) echo "error: --jobs needs a number from 1 on, found '$jobs'" >&2; exit 2 ;; esac
if [ "$letter" = d ]; then  # its results go where its sweep says; small: one recording, one budget
  exec "$here/d_adaptation/run.sh" "$swaplab" ${quick:+parameters.budget=0.6x}
fi
folder=$(echo "$here/${letter}"_*)
out=${out:-$root/results/chameleon-$letter}
mkdir -p "$out"
out=$(cd "$out" && pwd)

# sweep FILE [KEY=VALUE...]: prints the results folder's path.
sweep() {
  file=$1
  shift
  for resume in --resume ""; do  # what is finished is used again
    if "$swaplab" sweep "$file" "$@" --jobs "$jobs" -o "$out/sweeps" --json $resume > "$out/sweep.json" 2> "$out/sweep.log"; then
      sed -n 's/^.*"folder": *"\([^"]*\)".*$/\1/p' "$out/sweep.json"
      return
    fi
  done
  cat "$out/sweep.log" >&2
  exit 1
}

# Trace names in the sweep files are relative to the checkout, those of (c) to its output.
cd "$root"
second=
case $letter in
  a) results=$(sweep "$folder/sweep.yaml" ${quick:+parameters.trace=configs/traces/gpt_small.jsonl.gz}) ;;
  b)
    results=$(sweep "$folder/${quick:+quick_}sweep.yaml")
    second=$(sweep "$folder/${quick:+quick_}recompute.yaml")
    ;;
  c)
    cd "$out"
    [ -f traces/narrow_pp4full.jsonl.gz ] || "$folder/traces.sh" "$swaplab" ${quick:+4 4} > traces.log
    results=$(sweep "$folder/sweep.yaml" ${quick:+parameters.iterations=3})
    ;;
  e) results=$(sweep "$folder/sweep.yaml" ${quick:+parameters.trace=configs/traces/gpt_small.jsonl.gz}) ;;
  f) results=$(sweep "$folder/${quick:+quick_}sweep.yaml") ;;
esac
# (c) compares traces, not policies on one trace.
[ "$letter" = c ] || "$swaplab" compare "$results" > "$out/compare.txt"
"$swaplab" report "$results" -o "$out/report.html" > "$out/report.log"
"$python" "$here/tables.py" "$letter" "$results" $second --json "$out/table.json" --figure "$out/figure.png"
echo "more: $out/report.html, $out/figure.png, $out/table.json$([ "$letter" = c ] || echo ", $out/compare.txt")"
