# Sourced by the scripts here that are asked to end while something runs: that one ends first, and by itself.
# Their traps count `signals`, and send `child` one of their own.
# shellcheck shell=bash
child=    # what runs now
signals=0 # that came

wait_for_child() { # until it has ended, whatever comes meanwhile; its exit code
  local code before
  while :; do
    before=$signals
    wait "$child"
    code=$?
    [[ $signals -gt $before ]] || break # else it was a signal that ended the wait
  done
  child=
  return "$code"
}
