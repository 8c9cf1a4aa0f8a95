#!/bin/sh
# READ latency through the verbs transport beside that of ib_read_lat, turn by turn, in one lab:
#   bazel build //tests/rdma/verbs:verbs_latency && tools/lab -- tests/rdma/verbs/verbs_latency.sh
set -eu
program=${1:-bazel-bin/tests/rdma/verbs/verbs_latency}
for _ in 1 2 3; do
  for bytes in 64 256 1024; do
    timeout 60 ib_read_lat -R -s "$bytes" -n 5000 >/dev/null 2>&1 &
    server=$!
    sleep 1
    # Columns: bytes, iterations, least, most, typical (p50), average, deviation, 99 %, 99.9 %.
    timeout 60 ib_read_lat -R -s "$bytes" -n 5000 "$LAB_IP" 2>/dev/null |
      awk -v b="$bytes" '$1 == b && NF >= 9 { printf "ib_read_lat %4u B: least %7.2f us  p50 %7.2f us  p99 %7.2f us\n", b, $3, $5, $8 }'
    sleep 0.2
    kill "$server" 2>/dev/null || true  # when its peer could not connect
  done
  "$program"
done
