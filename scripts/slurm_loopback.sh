#!/usr/bin/env bash
# Runs a command inside a Slurm cluster of one node that exists only for it: munged, slurmctld and slurmd on
# loopback, in a temporary folder, without systemd. Exit code 77, with a reason, where that is impossible.
#   scripts/slurm_loopback.sh swaplab sweep configs/sweeps/policy_ab.yaml --executor slurm
# SLURM_CONF and PATH are set for the command; everything is stopped and removed at the end.
set -uo pipefail
skip() { echo "skip: $*" >&2; exit 77; }
[ $# -gt 0 ] || { echo "usage: $0 COMMAND..." >&2; exit 2; }
export PATH="$PATH:/usr/sbin:/sbin"
for tool in munged munge slurmctld slurmd sbatch squeue sinfo; do
  command -v "$tool" >/dev/null || skip "$tool is missing; apt-get install slurm-wlm munge"
done
[ "$(id -u)" = 0 ] || skip "slurmd needs root to start jobs"
work=$(mktemp -d "${TMPDIR:-/tmp}/slurm-loopback.XXXXXX") || skip "no temporary folder"
host=$(hostname -s)
pids=()
# Ends the daemons and every process that was started inside, known by its environment.
stop() {
  trap '' TERM INT HUP
  scancel --full --user "$(id -un)" 2>/dev/null
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null; done
  for pid in "${pids[@]}"; do
    for _ in $(seq 50); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
    kill -9 "$pid" 2>/dev/null
    wait "$pid" 2>/dev/null
  done
  for folder in /proc/[0-9]*; do
    [ "${folder#/proc/}" = $$ ] && continue
    grep -qs "SLURM_CONF=$work/slurm.conf" "$folder/environ" && kill -9 "${folder#/proc/}" 2>/dev/null
  done
  rm -rf "$work"
}
trap stop EXIT
trap 'exit 143' TERM INT HUP
free_port() { /usr/bin/python3 -c 'import socket; s=socket.socket(); s.bind(("127.0.0.1",0)); print(s.getsockname()[1])'; }
control=$(free_port) && node=$(free_port) || skip "no free ports (needs /usr/bin/python3)"
mkdir -p "$work"/{munge,state,spool} && chmod 755 "$work" && chmod 755 "$work/munge"
head -c 1024 /dev/urandom > "$work/munge/key" && chmod 400 "$work/munge/key"
cpus=$(nproc)
cat > "$work/slurm.conf" <<CONF
ClusterName=loopback
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$work/munge/socket
CryptoType=crypto/munge
SlurmctldPort=$control
SlurmdPort=$node
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.pid
SlurmdSpoolDir=$work/spool
StateSaveLocation=$work/state
SlurmctldLogFile=$work/slurmctld.log
SlurmdLogFile=$work/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerParameters=sched_interval=2,batch_sched_delay=0
ReturnToService=2
MinJobAge=300
SlurmctldTimeout=30
NodeName=$host NodeAddr=127.0.0.1 CPUs=$cpus State=UNKNOWN
PartitionName=batch Nodes=$host Default=YES MaxTime=INFINITE State=UP
CONF
export SLURM_CONF="$work/slurm.conf"
munged --force --foreground --key-file="$work/munge/key" --socket="$work/munge/socket" --pid-file="$work/munge/pid" \
  --log-file="$work/munge/log" --seed-file="$work/munge/seed" --num-threads=2 2>"$work/munge/err" &
pids+=($!)
for _ in $(seq 50); do [ -S "$work/munge/socket" ] && break; sleep 0.1; done
[ -S "$work/munge/socket" ] || skip "munged does not start: $(tail -1 "$work/munge/err")"
slurmctld -D -f "$SLURM_CONF" >"$work/ctld.out" 2>&1 &
pids+=($!)
slurmd -D -f "$SLURM_CONF" -N "$host" >"$work/d.out" 2>&1 &
pids+=($!)
for _ in $(seq 150); do
  state=$(sinfo -h -o %T 2>/dev/null)
  [ "$state" = idle ] && break
  sleep 0.2
done
[ "${state:-}" = idle ] || skip "the node does not come up (${state:-no answer}): $(tail -1 "$work/ctld.out") / $(tail -1 "$work/d.out")"
"$@" &
wait $!
code=$?
if [ $code -ne 0 ]; then tail -5 "$work/slurmctld.log" "$work/slurmd.log" >&2; fi
exit $code
