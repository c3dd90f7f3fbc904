#!/usr/bin/env bash
# The simulator's faults that `fencepost sim run --campaign all` leaves out, each in a cluster of its own; and faults one after the
# other, so that nobody may wait for longer than a bound (sim/cluster_progress.py):
#
#   chaos/asked_for.sh SEEDS FILE        for example: chaos/asked_for.sh 0..100 chaos-runs/campaigns.jsonl
#
# Why they are not among all others is in sim/cluster_fault_table.py and sim/transaction_faults.py. FILE gets a line of
# JSON for each. Exit codes: 0 all was well, 1 a promise was broken, 2 something could not be said, 130 interrupted.
set -uo pipefail

[[ $# -eq 2 ]] || { echo "usage: chaos/asked_for.sh SEEDS FILE, for example: chaos/asked_for.sh 0..100 chaos-runs/campaigns.jsonl" >&2; exit 2; }
cd "$(dirname "$0")/.." || exit 2
fencepost=${FENCEPOST:-.venv/bin/fencepost}
seeds=$1 file=$2
worst=0

source chaos/child.sh
# What runs writes its line and ends; nothing more is begun.
trap 'signals=$((signals + 1)); [[ -z $child ]] || kill -s TERM "$child" 2>/dev/null' INT TERM HUP

run() {
  local code=0
  if [[ $signals -gt 0 ]]; then exit $((worst == 1 ? 1 : 130)); fi
  "$fencepost" sim run --seeds "$seeds" --summary "$file" "$@" &
  child=$!
  wait_for_child || code=$?
  if [[ $code -gt 128 ]]; then exit $((worst == 1 ? 1 : code)); fi
  if [[ $code -eq 1 || ($code -ne 0 && $worst -eq 0) ]]; then worst=$code; fi
}

run --campaign cluster --faults power-apart --at-once 1 --config flush.policy=os # machines that go down one by one
run --campaign cluster --faults kill,pause,isolate --at-once 1                   # waiting has a bound
run --campaign cluster --faults full-for-long,kill --at-once 1 --seconds 40      # one disk is full, and two have room
run --campaign cluster --faults failing-log,kill                                 # the metadata log's own disk
run --campaign cluster --faults each-write                                       # every write in its turn, by seed
run --campaign transactions --faults each-write
# A cluster that began with one voter and grows: the settings of that one name no other, also when its disk is another.
run --campaign cluster --faults replace-disk,change-voters,kill --at-once 1 --config controller.quorum.voters=1@node-1:9192
run --campaign cluster --faults put-back-disk,kill --at-once 1                   # a node's folder of before
# Scenes: who was left behind is asked first, a write is shown before others have it, a batch comes after its transaction,
# a coordinator's word into the next topic of its name.
run --campaign cluster --faults left-behind,unheard-write --seconds 12
run --campaign cluster --faults slow-reader,kill --workloads expiring # a file goes, and some of it is on its way
run --campaign transactions --faults left-behind,late-batch,late-word --seconds 12
run --campaign transactions --faults at-a-deletion --workloads churn     # a coordinator sleeps while a topic is made anew
run --campaign transactions --faults upgrade,kill,reset --workloads bank # transaction.version 0 to 2, a node at a time
exit "$worst"
