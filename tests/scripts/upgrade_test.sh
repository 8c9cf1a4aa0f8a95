#!/bin/bash
# Two versions side by side: the servers of a cluster are upgraded one after the other, under the load of clients of both, and one goes
# back. No operation fails, and no value is lost or stale.
#
#   tests/scripts/upgrade_test.sh OLD [NEW]     folders with builds, as a checkout's bazel-bin; NEW is this checkout's
# shellcheck disable=SC2317  # functions are called through check
set -uo pipefail
[[ $# -ge 1 && -x $1/server/kvserver ]] || { sed -n '5s/^#  *//p' "${BASH_SOURCE[0]}" >&2; exit 2; }
old=$(cd "$1" && pwd) new=$(cd "${2:-$(dirname "${BASH_SOURCE[0]}")/../../bazel-bin}" && pwd)
readonly old new
readonly servers=(a b c) records=20000 load_s=150 wait_s=120

scratch=$(mktemp -d /tmp/osprey-upgrade.XXXXXX)
declare -A pids=()
end_all() {
  local pid
  for pid in "${pids[@]}"; do kill -9 "$pid" 2> /dev/null; done
  wait
  rm -rf "$scratch"
}
trap 'end_all 2> /dev/null' EXIT

failed=0
check() {
  local sentence=$1
  shift
  if "$@"; then
    echo "ok - $sentence"
  else
    echo "not ok - $sentence"
    tail -n 5 "$scratch"/*.log
    failed=1
    exit 1
  fi
}

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
client_port=$(free_port) peer_port=$(free_port)
readonly cluster=etcd://127.0.0.1:$client_port/upgrade
readonly uri=shm://$scratch/a.sock,$scratch/b.sock,$scratch/c.sock

start_etcd() {
  etcd --data-dir="$scratch/etcd" --listen-client-urls="http://127.0.0.1:$client_port" \
    --advertise-client-urls="http://127.0.0.1:$client_port" --listen-peer-urls="http://127.0.0.1:$peer_port" 2> "$scratch/etcd.log" &
  pids[etcd]=$!
}

# start_server BUILD ID
start_server() {
  "$1/server/kvserver" --cluster="$cluster" --server-id="$2" --memory=64MiB --listen="shm://$scratch/$2.sock" \
    --cluster-listen="shm://$scratch/$2.links" >> "$scratch/$2.log" 2>&1 &
  pids[$2]=$!
}

is_whole() {
  local shards
  shards=$("$new/tools/kvcli" cluster status "$cluster" 2> /dev/null | grep '^shard=') || return
  [[ $(grep -c . <<< "$shards") -eq 4 && $(grep -cE ' missing=0 .*ended=( |$)' <<< "$shards") -eq 4 ]]
}
become_whole() {
  local end=$((SECONDS + wait_s))
  until is_whole; do
    [[ $SECONDS -lt $end ]] || return
    sleep 0.2
  done
}

begin_with_the_old() {
  local id end=$((SECONDS + wait_s))
  start_etcd
  until "$old/tools/kvcli" cluster create "$cluster" --memory=64MiB --shards=4 --replicas=3 > /dev/null 2> "$scratch/create.log"; do
    [[ $SECONDS -lt $end ]] || return
    sleep 0.2
  done
  for id in "${servers[@]}"; do start_server "$old" "$id"; done
  become_whole && "$old/tools/kvbench" load --server="$uri" --records="$records" --value-size=64 > "$scratch/load.log" 2>&1
}

# start_load BUILD NAME
start_load() {
  "$1/tools/kvbench" run --server="$uri" --records="$records" --value-size=64 --workload=a --verify --threads=2 --timeout=30 \
    --duration="${load_s}s" > "$scratch/$2.log" 2>&1 &
  pids[$2]=$!
}

# replace ID BUILD: as systemctl restart does.
replace() {
  local id=$1 status=0
  kill -TERM "${pids[$id]}" && wait "${pids[$id]}" || status=$?
  unset "pids[$id]"
  [[ $status -eq 0 ]] || return
  start_server "$2" "$id"
  become_whole
}

both_loads_run() { kill -0 "${pids[old_clients]}" && kill -0 "${pids[new_clients]}"; }

load_had_no_failure() {
  local name=$1 status=0
  wait "${pids[$name]}" || status=$?
  unset "pids[$name]"
  [[ $status -eq 0 ]] && grep -q '^\[UPDATE\], Operations, [1-9]' "$scratch/$name.log" &&
    ! grep -E 'Return=.*, [1-9]' "$scratch/$name.log" | grep -v 'Return=OK,'
}

all_keys_are_there() {
  [[ $("$new/tools/kvcli" --server="$uri" count) == "$records" && $("$old/tools/kvcli" --server="$uri" count) == "$records" ]]
}

check "three servers of the old version form a cluster" begin_with_the_old
start_load "$old" old_clients
start_load "$new" new_clients
for id in "${servers[@]}"; do check "server $id is upgraded, and the cluster is whole" replace "$id" "$new"; done
check "server a goes back to the old version" replace a "$old"
check "clients of both versions are at work until then" both_loads_run
check "no operation of an old client failed or was wrong" load_had_no_failure old_clients
check "no operation of a new client failed or was wrong" load_had_no_failure new_clients
check "clients of both versions find all keys" all_keys_are_there
exit $failed
