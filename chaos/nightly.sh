#!/usr/bin/env bash
# A night of chaos with fresh seeds: half of the time in the simulator, of that an eighth the property tests, with examples that no
# other run has (tests/conftest.py), half on real nodes: of that a quarter Spark's jobs, whose parts are killed, and an eighth the
# pipeline (examples/pipeline). What it found is kept in DIR:
#
#   chaos/nightly.sh HOURS DIR
#
#   DIR/campaigns.jsonl   one line a campaign: commit, seeds, faults, failures with the command that brings each back
#   DIR/failed-*.log      what the simulator said of seeds that failed, and the small command that each was shrunk to
#   DIR/failed-SEED-properties.log  what pytest said: the smallest example that fails, and the line that plays it again; then:
#                         pytest --hypothesis-profile random --hypothesis-seed SEED TEST
#   DIR/runs/index.html   all runs on real nodes; those that are not valid with their histories and the nodes' data
#   DIR/spark-runs.log    Spark's jobs, a line each; DIR/spark-SEED has the data and logs of those that are not VALID
#   DIR/pipeline.log      the pipeline's runs; DIR/pipeline-SEED has the data and logs of those that are not EQUAL
#
# Exit codes: 0 nothing was found, 1 a promise was broken, 2 something could not be said or was not understood.
# SIGINT, SIGTERM and SIGHUP end it early: what runs is asked to end, once, what it found is kept, and the night is unknown.
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
python=${PYTHON:-$(dirname "$fencepost")/python}
command -v "$fencepost" >/dev/null || { echo "$fencepost is not there: run make install, or name it in FENCEPOST" >&2; exit 2; }
seconds=$(awk -v hours="$1" 'BEGIN { printf "%d", hours * 3600 }')
half=$((SECONDS + seconds * 7 / 16)) # the simulator's; the property tests have the last sixteenth
chunk=${SEEDS_AT_ONCE:-40} # of each campaign; a chunk is a line in campaigns.jsonl
seed=$(date +%s)           # nobody has had these
worst=0

worse() { # a broken promise (1) weighs more than what is unknown (2)
  if [[ $1 -eq 1 || $worst -eq 0 ]]; then worst=$1; fi
}

source chaos/child.sh
ended=    # the signal that ended the night
exec 3>&1 # what is said goes there, wherever a child's words go

# In a group of its own, so that a Ctrl-C reaches it through us alone; it is waited for until it has ended by itself.
run() { # COMMAND…
  set -m
  "$@" </dev/null 3>&- &
  child=$!
  set +m
  [[ -z $ended ]] || kill -s TERM "$child" 2>/dev/null
  wait_for_child
}

end() { # SIGNAL
  signals=$((signals + 1))
  [[ -z $ended ]] || return
  ended=$1
  worse 2
  echo "SIG$1 came before the night was over: what was found until then is in $out" >&3
  [[ -z $child ]] || kill -s TERM "$child" 2>/dev/null
}
for each in INT TERM HUP; do
  # shellcheck disable=SC2064 # the name of now
  trap "end $each" "$each"
done

simulate() {
  while [[ -z $ended ]] && ((half - SECONDS > 30)); do
    some_seeds all "$fencepost" sim run --campaign all --summary "$out/campaigns.jsonl" --seeds "$seed..$((seed + chunk))"
    some_seeds asked-for env FENCEPOST="$fencepost" chaos/asked_for.sh "$seed..$((seed + chunk))" "$out/campaigns.jsonl"
    seed=$((seed + chunk))
  done
  rm -f "$out/running.log"
}

some_seeds() { # NAME COMMAND…: as long as there is time; what it said is kept if it found something
  local code left=$((half - SECONDS)) log="$out/failed-$seed-$1.log"
  [[ -z $ended ]] && ((left > 0)) || return
  run timeout --preserve-status --signal INT --kill-after 300 "$left" "${@:2}" >"$out/running.log" 2>&1
  code=$?
  # Interrupted by the clock (130) is as it should be, unless a seed had failed by then (1): the summary has both.
  if [[ $code -ne 0 && $code -ne 130 ]]; then
    worse $((code == 1 ? 1 : 2))
    mv "$out/running.log" "$log"
    echo "seeds from $seed: see $log"
    grep '^again: ' "$log" | tail -n 3
  fi
}

# Again and again with the next seed, for so many seconds and once at least. Who names a number of examples has that many each time.
properties() {
  "$python" -c 'import hypothesis, pytest' || { lacks Hypothesis 'the property tests'; return; }
  local code end=$((SECONDS + $1)) its=$seed log left
  # pytest tells what failed when it is interrupted, and nothing when it is asked to end.
  local tests='import signal, sys, pytest; signal.signal(signal.SIGTERM, signal.default_int_handler); sys.exit(pytest.main())'
  while :; do
    left=$((end - SECONDS))
    log="$out/failed-$its-properties.log"
    # It is told once: in the foreground, or its group would be told beside it, and it tells nothing when it is interrupted in that.
    run timeout --foreground --preserve-status --signal INT --kill-after 300 "$((left > 60 ? left : 60))" "$python" -c "$tests" \
      -m 'hypothesis and not of_kafka and not long and not timed' --timeout 3600 \
      --hypothesis-profile random --hypothesis-seed "$its" tests >"$out/running.log" 2>&1
    code=$?
    # Interrupted by the clock (2) is as it should be, unless something had failed by then, or could not be read.
    if [[ $code -ne 0 ]] && { [[ $code -ne 2 ]] || grep -qE '^(FAILED|ERROR) ' "$out/running.log"; }; then
      if grep -q '^FAILED ' "$out/running.log"; then worse 1; else worse 2; fi
      mv "$out/running.log" "$log"
      echo "property tests with seed $its: see $log"
      grep -E '^(FAILED|ERROR) ' "$log" | tail -n 3
    fi
    its=$((its + 1))
    [[ -z $ended ]] && ((SECONDS < end)) || break
  done
  rm -f "$out/running.log"
}

# What a machine does not have is said, and left out; where nothing may be missing (CI=true) that is something unknown.
lacks() {
  echo "left out, there is no $1: $2"
  if [[ ${CI:-} == true ]]; then worse 2; fi
}

spark_runs() { # for so many seconds
  command -v java >/dev/null || { lacks Java "the runs that kill Spark's jobs"; return; }
  "$python" -c 'import pyspark, pyarrow' || { lacks PySpark "the runs that kill Spark's jobs"; return; }
  local code
  # Runs that have begun may end: each has time-outs of its own, and this is for those that have not.
  run timeout --signal TERM --kill-after 300 $(($1 + 3600)) "$python" -m fencepost.chaos.harness.spark_kill_runs \
    --seeds "$seed..$((seed + 10000))" --minutes "$(awk -v s="$1" 'BEGIN { printf "%.3f", s / 60 }')" \
    --data "$out/spark-$seed" >>"$out/spark-runs.log" 2>&1
  code=$?
  if [[ $code -eq 0 ]]; then
    rm -rf "$out/spark-$seed"
  else
    worse $((code == 1 ? 1 : 2))
    echo "Spark's jobs from seed $seed: see $out/spark-runs.log and $out/spark-$seed"
    grep -E '^(INVALID|UNKNOWN) ' "$out/spark-runs.log" | tail -n 3
  fi
}

pipeline() { # for so many seconds, and once at least
  command -v java >/dev/null || { lacks Java 'the pipeline'; return; }
  command -v mariadbd >/dev/null || [[ -x /usr/sbin/mariadbd ]] || { lacks MariaDB 'the pipeline'; return; }
  local code kept end=$((SECONDS + $1)) its=$seed
  while :; do
    run timeout --signal TERM --kill-after 300 3600 "$python" examples/pipeline/run.py --seed "$its" \
      --out "$out/pipeline" >"$out/running.log" 2>&1
    code=$?
    if [[ $code -ne 0 ]]; then
      worse $((code == 1 ? 1 : 2))
      echo "the pipeline, seed $its: see $out/pipeline.log"
      kept=$(sed -n 's/^data and logs are kept in //p' "$out/running.log" | tail -n 1)
      if [[ -d $kept ]]; then mv "$kept" "$out/pipeline-$its"; fi
    fi
    cat "$out/running.log" >>"$out/pipeline.log"
    its=$((its + 1))
    [[ -z $ended ]] && ((SECONDS < end)) || break
  done
  rm -f "$out/running.log"
}

simulate
[[ -n $ended ]] || properties $((seconds / 16))
# Past the last epoch of a producer id, which takes too long for every round. Only with time for it.
if [[ -z $ended ]] && ((seconds - SECONDS > 1800)); then
  run "$fencepost" chaos run --nodes 1 --faults epochs,sleeper,zombie --age-s 600 --seconds 180 --seed "$seed" --out "$out/runs/old-$seed"
  code=$?
  [[ $code -eq 0 ]] || worse "$code"
fi
left=$((seconds - SECONDS))
rounds=$((left * 5 / 8))
if [[ -z $ended ]]; then
  run "$fencepost" chaos rounds --minutes "$((rounds / 60 > 1 ? rounds / 60 : 1))" --out "$out/runs" ${TARGETS:+--targets "$TARGETS"}
  code=$?
  [[ $code -eq 0 ]] || worse "$code"
fi
if [[ -d $out/runs ]]; then
  "$fencepost" chaos prune "$out/runs"
  "$fencepost" chaos index "$out/runs"
fi
[[ -n $ended ]] || spark_runs $((left / 4))
[[ -n $ended ]] || pipeline $((left / 8))
exit "$worst"
