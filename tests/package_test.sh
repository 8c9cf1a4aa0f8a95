#!/bin/bash
# The Debian package: what is in it, that it installs, and that what it installs runs; in the lab's guest, over the host's
# root, so that nothing of the host changes.
#
#   tests/package_test.sh [DIRECTORY]   of a package that is built already
# shellcheck disable=SC2016  # single quotes: another shell expands
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

readonly lab_s_max=300

# Not TMPDIR: that may be a file system that the guest does not see.
scratch=$(mktemp -d /tmp/package-test-XXXXXX)
readonly scratch
trap 'rm -rf "$scratch"' EXIT

passed=0
failed=0

# check SENTENCE COMMAND...
check() {
  local sentence=$1
  shift
  if "$@" > "$scratch/log" 2>&1; then
    echo "ok - $sentence"
    passed=$((passed + 1))
  else
    tail -n 40 "$scratch/log"
    echo "not ok - $sentence"
    failed=$((failed + 1))
  fi
}

build() {
  local path
  if [[ -n ${1:-} ]]; then
    path=$(echo "$1"/osprey_*.deb)
  else
    path=$(tools/package "$scratch") || return
  fi
  [[ -f $path ]] && cp "$path" "$scratch/osprey.deb" && dpkg-deb --extract "$path" "$scratch/x"
}

has_what_it_promises() {
  local file
  for file in usr/bin/kvserver usr/bin/kvcli usr/include/osprey.h lib/systemd/system/osprey.service \
    etc/osprey/kvserver.flags usr/share/man/man8/kvserver.8.gz usr/share/man/man1/kvcli.1.gz \
    usr/share/bash-completion/completions/kvcli usr/share/doc/osprey/copyright \
    usr/share/doc/osprey/examples/prometheus.yml usr/share/doc/osprey/examples/prometheus-alerts.yml; do
    [[ -s $scratch/x/$file ]] || { echo "no $file"; return 1; }
  done
  [[ -n $(find "$scratch/x/usr/lib" -name libosprey.so.1) ]]
}

# Flags that are set, in the file, must be among them, too.
flag_file_has_every_flag_once() {
  local of_help of_file
  of_help=$("$scratch/x/usr/bin/kvserver" --help | sed -n 's/^  --\([a-z-]*\).*/\1/p' |
    grep -vx -e help -e version -e flagfile | sort)
  of_file=$(sed -n 's/^#--\([a-z-]*\).*/\1/p' "$scratch/x/etc/osprey/kvserver.flags" | sort)
  diff <(echo "$of_help") <(echo "$of_file")
}

# With the comments taken from before those that have a value: the defaults are what --help says, and are taken.
server_starts_with_the_defaults_of_the_flag_file() {
  sed -n 's/^#\(--[a-z-]*=.\+\)/\1/p' "$scratch/x/etc/osprey/kvserver.flags" |
    grep -v -e '^--listen=' -e '^--metrics=' > "$scratch/flags"
  [[ $(wc -l < "$scratch/flags") -ge 5 ]] || return
  timeout --preserve-status --signal=TERM 2 "$scratch/x/usr/bin/kvserver" --flagfile="$scratch/flags" \
    --listen="shm://$scratch/socket" --memory=64MiB | grep -x "ready shm://$scratch/socket"
}

man_pages_are_right() {
  local page
  for page in "$scratch"/x/usr/share/man/man?/*.gz; do
    gzip --decompress --stdout "$page" > "$scratch/page"
    mandoc -Tlint -W warning "$scratch/page" || return
    mandoc -Tutf8 "$scratch/page" | col -b | grep '^NAME' || return
  done
}

# complete_at WORD...: what is offered for the last of them.
complete_at() {
  bash -c 'source "$1"; shift; COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)); _osprey_kvcli; echo "${COMPREPLY[@]}"' - \
    "$scratch/x/usr/share/bash-completion/completions/kvcli" "$@"
}

completion_offers_commands_and_flags() {
  [[ $(complete_at kvcli doct) == doctor ]] &&
    [[ $(complete_at kvcli --serv) == --server= ]] &&
    [[ $(complete_at kvcli help exi) == exists ]] &&
    [[ -z $(complete_at kvcli get doct) ]] &&
    [[ " $(complete_at kvcli '') " == *' put '*' help '* ]]
}

every_link_of_its_pages_leads_somewhere() {
  local pages=$scratch/x/usr/share/doc/osprey page target links=0
  for page in README.md server/OPERATING.md tools/ERRORS.md client/README.md; do
    [[ -s $pages/$page ]] || { echo "no $page"; return 1; }
  done
  while IFS=: read -r page target; do
    links=$((links + 1))
    [[ -e ${page%/*}/$target ]] || { echo "$page leads to $target"; return 1; }
  done < <(grep --recursive --include='*.md' --only-matching --perl-regexp '\]\(\K[^)#: ]+(?=[)#])' "$pages")
  [[ $links -ge 30 ]]
}

unit_is_right() {
  sed "s|/usr/bin/kvserver|$scratch/x&|" "$scratch/x/lib/systemd/system/osprey.service" > "$scratch/osprey.service"
  # That man pages of it can be shown here is not the question.
  sed -i '/^Documentation=/d' "$scratch/osprey.service"
  systemd-analyze verify "$scratch/osprey.service" || return
  # Nothing that keeps RDMA from working: memory may be locked, devices are there, netlink is.
  local line
  for line in LimitMEMLOCK=infinity 'DeviceAllow=char-infiniband_verbs rw' Type=notify WatchdogSec=60; do
    grep -qx "$line" "$scratch/osprey.service" || return
  done
  grep -q '^RestrictAddressFamilies=.*AF_NETLINK' "$scratch/osprey.service"
}

installs_and_runs() {
  tools/lab --timeout="$lab_s_max" -- tests/package_in_lab "$scratch/osprey.deb"
}

check "tools/package builds a package" build "${1:-}"
check "it holds programs, library, service, man pages and completion" has_what_it_promises
check "the example flag file explains every flag of --help and no other" flag_file_has_every_flag_once
check "kvserver starts with the defaults that it tells" server_starts_with_the_defaults_of_the_flag_file
check "the man pages are well formed" man_pages_are_right
check "completion offers commands and flags" completion_offers_commands_and_flags
check "its pages are whole: every link leads to a file of the package" every_link_of_its_pages_leads_somewhere
check "systemd takes the unit, which allows what RDMA needs" unit_is_right
check "it installs as the pages say, systemd runs its service over RDMA with no more rights than it needs, and it goes without a trace" installs_and_runs
echo "$passed passed, $failed failed"
[[ $failed -eq 0 ]]
