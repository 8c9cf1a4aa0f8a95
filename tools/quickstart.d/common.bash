# shellcheck shell=bash
# What both jobs of tools/quickstart share. Sourced.

readonly put_s_max=180
readonly verify_s_max=60
readonly mib=$((1024 * 1024))
catalog_pid=''

step() { printf '        %s\n' "$*"; }
fail() {
  echo "quickstart: $*" >&2
  exit 1
}

# wait_for SECONDS WHAT PID COMMAND...: until COMMAND succeeds, while process PID lives.
wait_for() {
  local tenths=$(($1 * 10)) what=$2 pid=$3 tenth
  shift 3
  for ((tenth = 0; tenth < tenths; ++tenth)); do
    ! "$@" || return 0
    kill -0 "$pid" 2> /dev/null || break
    sleep 0.1
  done
  "$@" || { echo "quickstart: $what" >&2; return 1; }
}

# Four times the data. Each value has a header and a place in the index. The sample is stored a second time
# while the space of its first values waits for its grace period. The rest keeps the table below its limit.
memory_mib() { echo $((4 * $(stat -c %s "$index") / mib + 64)); }

start_catalog() {
  local mode=$1 seconds_max=$2
  timeout "$seconds_max" bazel-bin/tools/quickstart.d/catalog "$mode" "$index" --server="$uri" --deadline-s="$deadline_s" $progress > "$results/$mode.json" &
  catalog_pid=$!
}

await_catalog() {
  local mode=$1 seconds_max=$2 status=0
  wait "$catalog_pid" || status=$?
  catalog_pid=''
  case $status in
    0) ;;
    1) fail "some values were not read back as they were stored, see above" ;;
    124) fail "catalog $mode did not end within $seconds_max s" ;;
    *) fail "catalog $mode failed with status $status, see above" ;;
  esac
}
