#!/usr/bin/env bash
# A night of chaos with fresh seeds: half of the time in the simulator, half on real nodes. What it found is kept in DIR:
#
#   chaos/nightly.sh HOURS DIR
#
#   DIR/campaigns.jsonl   one line a campaign: commit, seeds, faults, failures with the command that brings each back
#   DIR/failed-*.log      what the simulator said of seeds that failed, and the small command that each was shrunk to
#   DIR/runs/index.html   all runs on real nodes; those that are not valid with their histories and the nodes' data
#
# Exit codes: 0 nothing was found, 1 a promise was broken, 2 something could not be said or was not understood.
# A target that is not here makes the night unknown: TARGETS=processes,kafka leaves containers out by name.
# Count the night with `fencepost chaos record DIR`; a failing seed goes to tests/regressions.
set -uo pipefail

usage() {
  echo "usage: chaos/nightly.sh HOURS DIR, for example: chaos/nightly.sh 8 /var/tmp/fencepost-nightly" >&2
  exit 2
}
[[ $# -eq 2 && $1 =~ ^[0-9]+(\.[0-9]+)?$ ]] || usage
mkdir -p "$2" && out=$(cd "$2" && pwd) || exit 2
cd "$(dirname "$0")/.." || exit 2
fencepost=${FENCEPOST:-.venv/bin/fencepost}
command -v "$fencepost" >/dev/null || { echo "$fencepost is not there: run make install, or name it in FENCEPOST" >&2; exit 2; }
seconds=$(awk -v hours="$1" 'BEGIN { printf "%d", hours * 3600 }')
half=$((SECONDS + seconds / 2))
chunk=${SEEDS_AT_ONCE:-40} # of each campaign; a chunk is a line in campaigns.jsonl
seed=$(date +%s)           # nobody has had these
worst=0

worse() { # a broken promise (1) weighs more than what is unknown (2)
  if [[ $1 -eq 1 || $worst -eq 0 ]]; then worst=$1; fi
}

simulate() {
  while ((half - SECONDS > 30)); do
    some_seeds all "$fencepost" sim run --campaign all --summary "$out/campaigns.jsonl" --seeds "$seed..$((seed + chunk))"
    FENCEPOST=$fencepost some_seeds asked-for chaos/asked_for.sh "$seed..$((seed + chunk))" "$out/campaigns.jsonl"
    seed=$((seed + chunk))
  done
  rm -f "$out/running.log"
}

some_seeds() { # NAME COMMAND…: as long as there is time; what it said is kept if it found something
  local code left=$((half - SECONDS)) log="$out/failed-$seed-$1.log"
  ((left > 0)) || return
  timeout --preserve-status --signal INT --kill-after 300 "$left" "${@:2}" >"$out/running.log" 2>&1
  code=$?
  # Interrupted by the clock (130) is as it should be, unless a seed had failed by then (1): the summary has both.
  if [[ $code -ne 0 && $code -ne 130 ]]; then
    worse $((code == 1 ? 1 : 2))
    mv "$out/running.log" "$log"
    echo "seeds from $seed: see $log"
    grep '^again: ' "$log" | tail -n 3
  fi
}

simulate
# Past the last epoch of a producer id, which takes too long for every round. Only with time for it.
if ((seconds - SECONDS > 1800)); then
  "$fencepost" chaos run --nodes 1 --faults epochs,sleeper,zombie --age-s 600 --seconds 180 --seed "$seed" --out "$out/runs/old-$seed"
  code=$?
  [[ $code -eq 0 ]] || worse "$code"
fi
left=$((seconds - SECONDS))
"$fencepost" chaos rounds --minutes "$((left / 60 > 1 ? left / 60 : 1))" --out "$out/runs" ${TARGETS:+--targets "$TARGETS"}
code=$?
[[ $code -eq 0 ]] || worse "$code"
"$fencepost" chaos prune "$out/runs"
"$fencepost" chaos index "$out/runs"
exit "$worst"
