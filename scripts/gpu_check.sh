#!/usr/bin/env bash
# Everything that is done on hardware, in one run of at most 8 minutes; results are files:
#   probe -> calibrate -> replay of 6 policies x 4 traces x 2 budgets -> replay of the online policies, which
#   plan with the times measured here -> validate -> compute-sanitizer on a small replay -> the real training check. Programs must be built before (build/release, or --build).
#   --device cuda|cuda:N|host   host: a dry run of all of it without a GPU, on small sets
#   --output DIR                default gpu_check
#   --build DIR                 where swaplab and swaplab-gpu are (default build/release)
#   --base MACHINE              profile whose unmeasured figures are kept (default h100-pcie5)
# Exit code: 0 when every step ended as it should, 1 otherwise; summary.txt says which.
set -uo pipefail
cd "$(dirname "$0")/.."

device=cuda output=gpu_check build=build/release base=h100-pcie5
while [ $# -gt 0 ]; do
  case $1 in
    --device) device=${2:?} && shift 2 ;;
    --output) output=${2:?} && shift 2 ;;
    --build) build=${2:?} && shift 2 ;;
    --base) base=${2:?} && shift 2 ;;
    --help | -h) sed -n '2,10s/^# \{0,1\}//p' "$0" && exit 0 ;;
    *) echo "error: unknown option $1; expected --device, --output, --build, --base" >&2 && exit 2 ;;
  esac
done
for program in swaplab swaplab-gpu; do
  [ -x "$build/$program" ] || { echo "error: $build/$program is not built (cmake --preset release && cmake --build build/release)" >&2; exit 2; }
done
python=$(command -v python3 || true)
# Debian's torch belongs to Debian's Python, which need not be the first on the path.
for candidate in "$python" /usr/bin/python3; do
  if [ -x "$candidate" ] && "$candidate" -c 'import torch' 2>/dev/null; then python=$candidate && break; fi
done
mkdir -p "$output"
: > "$output/summary.txt"

begun=$SECONDS budget=480 failed=0 running=
# `timeout` has a process group of its own: pass a stop on, let the step keep what it has, and end.
stop() {
  if [ -n "$running" ]; then kill -INT "$running" 2>/dev/null; wait "$running"; fi
  echo "stopped; results so far are in $output" >&2
  exit 130
}
trap stop INT TERM HUP
note() { printf '%s\n' "$*" | tee -a "$output/summary.txt"; }
# step NAME LIMIT_SECONDS ACCEPTED_CODES COMMAND...: output to NAME.log. What the whole may take is the limit, too.
# A step that runs out of its time is interrupted (SIGINT), so that it keeps what it has.
step() {
  local name=$1 limit=$2 accepted=$3 left=$((budget - (SECONDS - begun))) start=$SECONDS code=0
  shift 3
  [ "$left" -lt 5 ] && { note "$name: left out, the 8 minutes are over"; failed=1; return 1; }
  [ "$limit" -gt "$left" ] && limit=$left
  timeout --preserve-status --signal=INT --kill-after=30 "$limit" "$@" > "$output/$name.log" 2>&1 &
  running=$!
  wait "$running" || code=$?
  running=
  if [[ " $accepted " == *" $code "* ]]; then
    note "$name: ok (exit $code, $((SECONDS - start)) s)$( [ "$code" -eq 77 ] && printf ' %s' "$(tail -1 "$output/$name.log")")"
  else
    note "$name: FAILED (exit $code, $((SECONDS - start)) s): $(tail -1 "$output/$name.log")"
    failed=1
    return 1
  fi
}

traces=configs/traces/gpt_small.jsonl.gz,configs/traces/gpt_varied.jsonl.gz,configs/traces/moe.jsonl.gz
policies=lru,next-use,foresight,offload-activations:fallback=lru
policies+=,offload-activations:preset=torchtune,fallback=lru,offload-activations:preset=megatron,fallback=lru
if [ "$device" = host ]; then
  # Threads are no GPU: 1/64 of the bytes, copies as fast as memory allows, and 1/100 of the time that the
  # matrix rates of a CPU make of the kernels. Times then mean nothing, so the tolerances only ask that
  # everything is there to be compared.
  traces+=,configs/traces/resnet50_b256.jsonl.gz
  probe=(--limit-seconds 20)
  replay=(--bytes-scale 1/64 --time-scale 0.01 --fast-copies --repeats 1 --iterations 4 --verify 16)
  tolerance=(--tolerance iteration=1000%,peak=0.02,tau=0,regret=1000%)
else
  traces+=,configs/traces/gpt2_medium.jsonl.gz,configs/traces/resnet50_b256.jsonl.gz
  probe=(--limit-seconds 90) replay=(--repeats 3 --iterations 6 --verify 64)
  tolerance=()
fi

note "gpu_check: device $device, $(date -u +%Y-%m-%dT%H:%M:%SZ)"
step 1-probe 120 0 "$build/swaplab-gpu" probe --device "$device" "${probe[@]}" -o "$output/measurements.json" || {
  note "without a device there is nothing to check"
  exit 1
}
step 2-calibrate 30 0 "$build/swaplab" calibrate "$output/measurements.json" --base "$base" -o "$output/machine.yaml"
machine=$output/machine.yaml
[ -e "$machine" ] || machine=$base
# 130: the time was over; what was finished is in the file.
step 3-replay 180 "0 130" "$build/swaplab-gpu" replay --device "$device" --machine "$machine" --trace "$traces" \
  --policy "$policies" --budget 0.6x,0.8x --output "$output/measured.jsonl" "${replay[@]}"
online=(--repeats 1 --iterations 8 --verify 16)
[ "$device" = host ] && online+=(--bytes-scale 1/64 --time-scale 20)
step 3-online 60 "0 130" "$build/swaplab-gpu" replay --device "$device" --machine "$machine" \
  --trace configs/traces/gpt_small.jsonl.gz --policy adaptive,chameleon --budget 0.6x \
  --output "$output/online.jsonl" "${online[@]}"
# The probe measures no trace, so no trace was used for calibration.
step 4-validate 60 0 "$build/swaplab" validate --measured "$output/measured.jsonl" --machine "$machine" \
  --html "$output/validation.html" "${tolerance[@]}"
if [ "$device" = host ]; then
  note "5-sanitizer: left out on the host device"
elif command -v compute-sanitizer > /dev/null; then
  step 5-sanitizer 60 0 compute-sanitizer --tool memcheck --error-exitcode 9 "$build/swaplab-gpu" replay \
    --device "$device" --machine "$machine" --trace configs/traces/gpt_small.jsonl.gz --policy lru --budget 0.7x \
    --repeats 1 --iterations 2
else
  note "5-sanitizer: left out, compute-sanitizer is not installed"
fi
if [ -n "$python" ]; then
  step 6-training 120 "0 77" "$python" scripts/gpu_training_check.py --swaplab "$build/swaplab" --machine "$machine" \
    --work "$output/training" -o "$output/training.json"
else
  note "6-training: left out, there is no python3"
fi
note "took $((SECONDS - begun)) s; files are in $output"
exit "$failed"
