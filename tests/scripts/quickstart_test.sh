#!/bin/bash
# A newcomer's first look: tools/quickstart on soft-RoCE, and the three commands that it tells to try.
# shellcheck disable=SC2317  # functions are called through check
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit

scratch=$(mktemp -d /tmp/quickstart-test.XXXXXX)
trap 'rm -rf "$scratch"' EXIT
failed=0

check() {
  local sentence=$1
  shift
  if "$@"; then
    echo "ok - $sentence"
  else
    echo "not ok - $sentence"
    failed=1
  fi
}

says() { grep -qE -- "$1" "$scratch/out"; }

server_pid=''
# The commands as printed. The first starts a server in the background, which is ended here.
commands_work() {
  local commands=() value
  mapfile -t commands < <(tail -n 3 "$scratch/out")
  eval "${commands[0]}" > "$scratch/server" || return
  server_pid=$!
  eval "${commands[1]}" && value=$(eval "${commands[2]}")
  local status=$?
  kill "$server_pid" && wait "$server_pid"
  local server_status=$?
  [[ $status -eq 0 && $value == saturn && $server_status -eq 0 ]]
}

quickstart_succeeds() { tools/quickstart --lab > "$scratch/out"; }

durable_quickstart_succeeds() {
  tools/quickstart --lab --durable > "$scratch/durable" || { cat "$scratch/durable"; return 1; }
  grep -q 'killed during the PUTs ' "$scratch/durable" && grep -q ' 0 values differ, 0 are missing' "$scratch/durable"
}

cluster_quickstart_succeeds() {
  tools/quickstart --lab --cluster > "$scratch/cluster" || { cat "$scratch/cluster"; return 1; }
  grep -q 'killed in the PUTs ' "$scratch/cluster" && grep -q 'frozen in the GETs ' "$scratch/cluster" &&
    grep -q ' 0 values differ, 0 are missing' "$scratch/cluster"
}

reads_per_get_are_few() {
  awk -v most=2.05 '/READs per GET/ { found = 1; if ($4 > most) exit 1 } END { exit !found }' "$scratch/out"
}

usage_is_status_two() {
  tools/quickstart --bogus > "$scratch/usage" 2>&1
  [[ $? -eq 2 ]] && grep -q '^usage: ' "$scratch/usage" || return
  tools/quickstart --durable --cluster > "$scratch/usage" 2>&1
  [[ $? -eq 2 ]] && grep -q '^usage: ' "$scratch/usage"
}

a_wrong_index_is_refused() {
  tools/quickstart --index=/nowhere/index > "$scratch/wrong" 2>&1
  [[ $? -eq 1 ]] && grep -q '/nowhere/index' "$scratch/wrong"
}

# With a Bazel that says so much, takes its time, and fails.
a_build_says_how_far_it_is() {
  mkdir "$scratch/bin"
  printf '#!/bin/sh\necho "[12 / 345] Compiling some.cc"; sleep 6; echo "no good"; exit 1\n' > "$scratch/bin/bazel"
  chmod +x "$scratch/bin/bazel"
  PATH=$scratch/bin:$PATH tools/quickstart --lab > "$scratch/build.out" 2> "$scratch/build.err"
  [[ $? -eq 1 ]] && grep -q 'build: \[12 / 345\]' "$scratch/build.err" &&
    grep -q 'no good' "$scratch/build.err" && grep -q 'minutes the first time' "$scratch/build.out"
}

check "a wrong flag is status 2 with the usage" usage_is_status_two
check "an index that cannot be read is refused by name" a_wrong_index_is_refused
check "a build says how far it is, and what went wrong" a_build_says_how_far_it_is
check "quickstart succeeds" quickstart_succeeds
cat "$scratch/out"
check "the transport is verbs on soft-RoCE" says 'transport +verbs, device rxe'
check "every byte is equal" says ' 0 values differ, 0 are missing'
check "the server handled no request during the GETs" says ' 0 requests, '
check "a GET takes at most 2.05 READs" reads_per_get_are_few
check "quickstart --durable succeeds, with the server killed twice" durable_quickstart_succeeds
# Some two minutes.
[[ -z ${OSPREY_TEST_LONG:-} ]] || check "quickstart --cluster succeeds, with a server killed and one frozen" cluster_quickstart_succeeds
check "the three commands work as printed" commands_work
exit $failed
