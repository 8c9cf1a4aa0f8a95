#!/bin/bash
# The Debian packages for arm64: their programs, the library for C and the package for Python run in a guest of that architecture, over verbs.
#
#   tests/scripts/arm64_package_test.sh ROOT   as tools/test.d/arm64-root prints it
# shellcheck disable=SC2016,SC2317  # single quotes: another shell expands; `check` calls the functions
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1

readonly arm64_root=$1
readonly lab_s_max=3000  # never reached: a guest whose command hangs is silent before
scratch=$(mktemp -d /tmp/arm64-package-test-XXXXXX)
readonly scratch
trap 'rm -rf "$scratch"' EXIT
. tests/scripts/cases.bash

readonly names=(osprey libosprey1 libosprey-dev python3-osprey)

build() {
  local name
  mkdir "$scratch/built" && tools/package --arm64 "$scratch/built" || return
  for name in "${names[@]}"; do dpkg-deb --extract "$scratch/built/${name}"_*_arm64.deb "$scratch/x" || return; done
}

are_for_arm64() {
  local name file
  for name in "${names[@]}"; do
    [[ $(dpkg-deb --field "$scratch/built/${name}"_*.deb Architecture) == arm64 ]] || { echo "$name"; return 1; }
  done
  for file in usr/bin/{kvserver,kvcli,kvbench} usr/lib/aarch64-linux-gnu/libosprey.so.1 \
    usr/lib/python3/dist-packages/osprey/_core.cpython-311-aarch64-linux-gnu.so; do
    readelf --file-header "$scratch/x/$file" | grep 'Machine: *AArch64' || { echo "$file"; return 1; }
  done
  # libosprey's own package is not installed anywhere.
  dpkg-deb --field "$scratch/built"/osprey_*.deb Depends | grep libibverbs1
}

c_program_is_built() {
  cat > "$scratch/get.c" << 'END'
#include <osprey.h>
#include <stdio.h>

int main(void) {
  printf("%d\n", osprey_api_version());
  return 0;
}
END
  "$arm64_root/gcc" "$scratch/get.c" -I"$scratch/x/usr/include" -L"$scratch/x/usr/lib/aarch64-linux-gnu" -losprey -o "$scratch/get"
}

in_guest() { tools/lab --timeout="$lab_s_max" --arm64 "$arm64_root" -- sh -euc "cd '$scratch/x/usr'; $1"; }

programs_run() {
  in_guest '
    uname -m | grep aarch64
    bin/kvserver --listen="rdma://$LAB_IP:7400" --memory=64MiB &
    server=$!
    export OSPREY_SERVER="rdma://$LAB_IP:7400"
    bin/kvcli --await-server ping
    bin/kvcli put planet saturn
    bin/kvcli get planet | grep saturn
    bin/kvbench load --records=5000
    bin/kvbench run --workload=a --records=5000 --operations=5000 --verify
    PYTHONPATH=lib/python3/dist-packages python3 -c "
import os, osprey
with osprey.Client(os.environ[\"OSPREY_SERVER\"]) as client:
  assert client.get(\"planet\").value == b\"saturn\", client.get(\"planet\")
"
    LD_LIBRARY_PATH=lib/aarch64-linux-gnu ../../get
    kill $server
    wait $server'
}

check "packages for arm64 are built" build
check "what is in them is for arm64" are_for_arm64
check "a program in C is built of them" c_program_is_built
check "their programs and libraries run on arm64, over verbs" programs_run
[[ $failed -eq 0 ]]
