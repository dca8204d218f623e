#!/bin/sh
# Makes the traces of experiment (c) in ./traces: one rank's program under each strategy, every rank training on
# the same number of sequences. usage: traces.sh SWAPLAB [layers of the wide model] [of the narrow one]
set -eu
swaplab=$1
wide=${2:-20}
narrow=${3:-32}
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p traces

# make GROUP NAME MACHINE BANDWIDTH KEY=VALUE...
make() {
  out=traces/$1_$2.jsonl.gz machine=$3 bandwidth=$4
  shift 4
  "$swaplab" trace synth gpt2-medium model.vocab=32000 model.dropout=yes training.precision=bf16 \
    training.master_weights=yes training.optimizer=adamw-loop training.iterations=3 "$@" --machine "$machine" \
    -o traces/raw.jsonl > /dev/null
  /usr/bin/python3 "$here/../collective_times.py" traces/raw.jsonl -o "$out" --bandwidth "$bandwidth"
  rm traces/raw.jsonl
}

# group GROUP MACHINE BANDWIDTH KEY=VALUE...
group() {
  name=$1 machine=$2 bandwidth=$3
  shift 3
  strategy() {
    which=$1
    shift
    make "$name" "$which" "$machine" "$bandwidth" "$@"
  }
  one="model.loss_chunks=16 training.accumulation=2 parallel.data=64 parallel.zero=3"
  strategy none "$@" $one
  strategy full "$@" $one training.recompute=full
  strategy full2 "$@" $one training.recompute=full training.recompute_stride=2
  strategy tp2 "$@" training.accumulation=4 parallel.data=32 parallel.zero=3 parallel.tensor=2
  strategy tp4 "$@" training.accumulation=8 parallel.data=16 parallel.zero=3 parallel.tensor=4
  strategy tp8 "$@" training.accumulation=16 parallel.data=8 parallel.zero=3 parallel.tensor=8
  strategy tp8sp "$@" training.accumulation=16 parallel.data=8 parallel.zero=3 parallel.tensor=8 parallel.sequence=yes
  strategy pp4 "$@" training.accumulation=8 parallel.data=16 parallel.zero=1 parallel.pipeline=4
  strategy pp4full "$@" training.accumulation=8 parallel.data=16 parallel.zero=1 parallel.pipeline=4 training.recompute=full
}

# NVLink per direction: A100 276 GB/s between two GPUs as measured (nvbandwidth), H100 generation 371 GB/s.
group wide a100-40g-pcie4 276e9 model.layers="$wide" model.hidden=8192 model.heads=64 model.max_positions=16384 \
  training.sequence=16384 training.batch=1
group narrow gh200-c2c 371e9 model.layers="$narrow" model.hidden=4096 model.heads=32 model.max_positions=8192 \
  training.sequence=8192 training.batch=4
