#!/bin/bash
# The scripts of tools/ say how they are used: when asked, and when a flag is wrong, before they do anything.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1

scratch=$(mktemp -d /tmp/usage-test.XXXXXX)
trap 'rm -rf "$scratch"' EXIT
failed=0

# says STATUS STREAM COMMAND...: it ends with STATUS, and its usage is on STREAM (out or err) alone.
says() {
  local status=$1 stream=$2 got=0 other=out
  shift 2
  [[ $stream == err ]] || other=err
  timeout 60 "$@" < /dev/null > "$scratch/out" 2> "$scratch/err" || got=$?
  if [[ $got -eq $status ]] && grep -q "^usage: .*${1##*/}" "$scratch/$stream" && [[ ! -s $scratch/$other ]]; then
    echo "ok - $* ends with status $status and its usage"
  else
    head -n 20 "$scratch/out" "$scratch/err"
    echo "not ok - $* ends with status $status and its usage"
    failed=1
  fi
}

for script in bench format install-packages lab package quickstart record test; do
  says 0 out "tools/$script" --help
  says 2 err "tools/$script" --nonsense
done
says 2 err tools/bench nonsense
says 2 err tools/install-packages nonsense
says 2 err tools/test --only=nonsense
exit "$failed"
