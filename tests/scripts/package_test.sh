#!/bin/bash
# The Debian package: what is in it, that it installs, and that what it installs runs; in the lab's guest, over the host's
# root, so that nothing of the host changes.
#
#   tests/scripts/package_test.sh [DIRECTORY]   of a package that is built already
# shellcheck disable=SC2016  # single quotes: another shell expands
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1

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
  for file in usr/bin/{kvserver,kvcli,kvbench} usr/share/man/man8/kvserver.8.gz usr/share/man/man1/{kvcli,kvbench}.1.gz \
    usr/share/bash-completion/completions/{kvserver,kvcli,kvbench} usr/include/osprey.h lib/systemd/system/osprey.service \
    etc/osprey/kvserver.flags usr/share/doc/osprey/copyright \
    usr/share/doc/osprey/examples/{prometheus.yml,prometheus-alerts.yml,grafana-dashboard.json}; do
    [[ -s $scratch/x/$file ]] || { echo "no $file"; return 1; }
  done
  [[ -n $(find "$scratch/x/usr/lib" -name libosprey.so.1) ]]
}

# Flags that are set, in the file, must be among them, too.
flag_file_has_every_flag_once() {
  local of_help of_file
  of_help=$("$scratch/x/usr/bin/kvserver" --help | sed -n 's/^  --\([a-z-]*\).*/\1/p' |
    grep -vx -e help -e version -e flagfile -e memory-for | sort)
  of_file=$(sed -n 's/^#--\([a-z-]*\).*/\1/p' "$scratch/x/etc/osprey/kvserver.flags" | sort)
  diff <(echo "$of_help") <(echo "$of_file")
}

# With the comments taken from before those that have a value: the defaults are what --help says, and are taken.
server_starts_with_the_defaults_of_the_flag_file() {
  sed -n 's/^#\(--[a-z-]*=.\+\)/\1/p' "$scratch/x/etc/osprey/kvserver.flags" |
    grep -v -e '^--listen=' > "$scratch/flags"
  [[ $(wc -l < "$scratch/flags") -ge 5 ]] || return
  timeout --foreground --preserve-status --signal=TERM 2 "$scratch/x/usr/bin/kvserver" --flagfile="$scratch/flags" \
    --listen="shm://$scratch/socket" --memory=64MiB | grep -x "ready shm://$scratch/socket"
}

man_pages_are_right() {
  local page word
  for page in "$scratch"/x/usr/share/man/man?/*.gz; do
    gzip --decompress --stdout "$page" > "$scratch/page"
    mandoc -Tlint -W warning "$scratch/page" || return
    mandoc -Tutf8 "$scratch/page" | col -b | grep '^NAME' || return
  done
  for word in SHELL OSPREY_HISTORY 'expire planet 60' '\-\-if\-version' 'Fl \-help'; do
    gzip --decompress --stdout "$scratch/x/usr/share/man/man1/kvcli.1.gz" | grep -F -e "$word" || return
  done
  gzip --decompress --stdout "$scratch/x/usr/share/man/man1/kvbench.1.gz" | grep '^\.Sh EXAMPLES' || return
}

# As --help lists them: a name a line.
flags_of_help() { "$scratch/x/usr/bin/$1" --help | sed -n 's/^  \(--\?[a-zA-Z][a-z-]*\)[= ].*/\1/p'; }

# completed_at WORD...: what is offered for the last of them, by what completes the first.
completed_at() {
  # shellcheck disable=SC2016  # another bash expands it
  bash -c 'source "$1"; shift; COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)); "_osprey_$1"; echo "${COMPREPLY[@]}"' - \
    "$scratch/x/usr/share/bash-completion/completions/$1" "$@"
}

pages_and_completion_have_every_flag() {
  local program flag page
  for program in kvserver kvcli kvbench; do
    page=$(find "$scratch/x/usr/share/man" -name "$program.?.gz")
    gzip --decompress --stdout "$page" | mandoc -Tutf8 | col -b > "$scratch/page"
    [[ $(flags_of_help "$program" | wc -l) -ge 12 ]] || { echo "$program: --help lists few flags"; return 1; }
    while read -r flag; do
      # In the list of options: at the beginning of a line.
      grep -q -E -e "^ +$flag([= ]|\$)" "$scratch/page" || { echo "$page: no $flag"; return 1; }
      [[ " $(completed_at "$program" "$flag") " == *" $flag"[\ =]* ]] || { echo "$program: $flag is not completed"; return 1; }
    done < <(flags_of_help "$program")
  done
}

# is_completed EXPECTED WORD...
is_completed() {
  local expected=$1 offered
  shift
  offered=$(completed_at "$@")
  [[ $offered == "$expected" ]] || { echo "$*: offered '$offered', not '$expected'"; return 1; }
}

completion_offers_what_may_stand_there() {
  is_completed doctor kvcli doct &&
    is_completed --server= kvcli --serv &&
    is_completed exists kvcli help exi &&
    is_completed '' kvcli help get exi &&
    is_completed '' kvcli get doct &&
    # Of a command its flags alone, wherever it stands, and in capitals.
    is_completed '--if-absent --if-version=' kvcli put planet --if &&
    is_completed --if-version= kvcli --server = shm:///x DEL planet --if &&
    is_completed '' kvcli get planet --ttl &&
    is_completed '--self-test= --self-test' kvcli doctor --self &&
    is_completed --json kvcli get --js &&
    is_completed 'csv' kvcli import x --format = c &&
    is_completed 'csv jsonl binary' kvcli export --format '' &&
    is_completed serve kvcli doctor --self-test = s &&
    # Files, which are readline's to find.
    is_completed '' kvcli import '' &&
    is_completed "@$scratch/osprey.deb" kvcli put planet @ "$scratch/osprey.d" &&
    is_completed load kvbench lo &&
    is_completed merge kvbench m &&
    is_completed '--warmup=' kvbench run --warm &&
    is_completed '' kvbench merge x --warm &&
    is_completed 'a b c d e f etc' kvbench run --workload = '' &&
    is_completed spin kvbench run --wait = s &&
    is_completed fixed kvbench run --arrivals = f &&
    is_completed requestdistribution= kvbench run -p req &&
    is_completed 'zipfian' kvbench run -p requestdistribution = z &&
    is_completed '' kvbench run -P '' &&
    is_completed 'busy adaptive event' kvserver --poll = '' &&
    is_completed clock kvserver --evict = c &&
    is_completed '0600 0660 0666' kvserver --socket-mode = '' &&
    [[ " $(completed_at kvcli '') " == *' put '*' help '* ]]
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

its_pages_name_programs_as_they_are_installed() {
  local pages=$scratch/x/usr/share/doc/osprey
  if grep --recursive --include='*.md' -e bazel-bin "$pages"; then return 1; fi
  grep -q '^| `kvserver --listen=' "$pages/tools/README.md" &&
    grep -q '^kvcli export /tmp/backup.bin --format=binary$' "$pages/server/OPERATING.md" &&
    grep -q '^gcc .* -o planets planets.c -losprey$' "$pages/client/README.md" &&
    grep -q '^\./planets$' "$pages/client/README.md" &&
    cmp LICENSE "$pages/LICENSE"
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
  tools/lab --timeout="$lab_s_max" -- tests/scripts/package_in_lab "$scratch/osprey.deb"
}

check "tools/package builds a package" build "${1:-}"
check "it holds programs, library, service, man pages and completion" has_what_it_promises
check "the example flag file explains every flag of --help and no other" flag_file_has_every_flag_once
check "kvserver starts with the defaults that it tells" server_starts_with_the_defaults_of_the_flag_file
check "the man pages are well formed" man_pages_are_right
check "man pages and completion have every flag of --help" pages_and_completion_have_every_flag
check "completion offers commands, their flags, and values" completion_offers_what_may_stand_there
check "its pages are whole: every link leads to a file of the package" every_link_of_its_pages_leads_somewhere
check "its pages name the programs as they are installed" its_pages_name_programs_as_they_are_installed
check "systemd takes the unit, which allows what RDMA needs" unit_is_right
check "it installs as the pages say, systemd runs its service over RDMA with no more rights than it needs, and it goes without a trace" installs_and_runs
echo "$passed passed, $failed failed"
[[ $failed -eq 0 ]]
