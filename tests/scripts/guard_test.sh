#!/bin/bash
# tools/test.d/guard: what hangs is ended, however long what works takes.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit

failed=0

# expect SENTENCE STATUS OUTPUT_PATTERN GUARD_ARGUMENT...
expect() {
  local sentence=$1 wanted_status=$2 wanted_output=$3 output status=0
  shift 3
  output=$(timeout 60 tools/test.d/guard "$@" 2> /dev/null) || status=$?
  # shellcheck disable=SC2053  # a pattern
  if [[ $status -eq $wanted_status && $output == $wanted_output ]]; then
    echo "ok - $sentence"
  else
    echo "not ok - $sentence"
    echo "status $status instead of $wanted_status, output: $output"
    failed=1
  fi
}

expect "a command's output and status pass through" 3 $'out\nerr' 30 sh -c 'echo out; echo err >&2; exit 3'
# (A busy machine stands still for seconds at times.)
# shellcheck disable=SC2016  # the inner shell expands
expect "a command that writes now and then is not ended" 0 $'1\n2\n3\n4\n5' 8 sh -c 'for i in 1 2 3 4 5; do sleep 2; echo $i; done'
expect "a command that writes nothing is ended, with what it started" 124 $'a\nguard: ended after 1 s*' \
  1 sh -c 'echo a; sleep 300 & wait'
expect "a command that ignores SIGTERM is ended" 124 'guard: ended after 1 s*' 1 sh -c 'trap "" TERM; while :; do sleep 1; done'
expect "a signal's number is told" 137 '' 30 sh -c 'kill -KILL $$'
expect "what a command leaves running does not hold it up" 0 'done' 30 sh -c 'sleep 20 & echo done'
expect "what can wait has its turns while others leave the processors idle" 0 19 --behind 30 nice
# (Not each kernel has autogroups.)
[[ ! -e /proc/self/autogroup ]] ||
  expect "what can wait has a session that waits, too" 0 '* nice 19' --behind 30 cat /proc/self/autogroup
expect "what cannot has them before others, if the user is root" 0 "$([[ $(id -u) == 0 ]] && echo -10 || echo 0)" --ahead 30 nice
expect "a limit that is no number is a usage error" 2 '' soon true

exit $failed
