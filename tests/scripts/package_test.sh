#!/bin/bash
# The Debian packages: what is in them, that programs are built of them, that they install, and that what they install runs;
# in the lab's guest, over the host's root, so that nothing of the host changes.
#
#   tests/scripts/package_test.sh [--no-lab] [DIRECTORY]   of packages that are built already; or without the guest
# shellcheck disable=SC2016  # single quotes: another shell expands
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1

readonly lab_s_max=3000  # never reached: a guest whose command hangs is silent before

# Not TMPDIR: that may be a file system that the guest does not see.
scratch=$(mktemp -d /tmp/package-test-XXXXXX)
readonly scratch
server=
# shellcheck disable=SC2317  # the trap calls it
clean_up() {
  if [[ -n $server ]]; then kill "$server"; fi
  rm -rf "$scratch"
}
trap clean_up EXIT

. tests/scripts/cases.bash

build() {
  local directory=${1:-$scratch/built} name paths
  if [[ -z ${1:-} ]]; then
    mkdir "$directory"
    tools/package "$directory" > "$scratch/paths" || return
    diff "$scratch/paths" <(printf '%s\n' "$directory"/{osprey,libosprey1,libosprey-dev,python3-osprey}_*.deb) || return
  fi
  for name in osprey libosprey1 libosprey-dev python3-osprey; do
    paths=("$directory/${name}"_*.deb)
    [[ ${#paths[@]} -eq 1 && -f ${paths[0]} ]] || { echo "not one package $name: ${paths[*]}"; return 1; }
    cp "${paths[0]}" "$scratch/$name.deb" && dpkg-deb --extract "$scratch/$name.deb" "$scratch/x" || return
  done
}

# Of each file there is one owner, but for what users of all three have.
has_what_it_promises() {
  local file twice
  for file in usr/bin/{kvserver,kvcli,kvbench} usr/share/man/man8/kvserver.8.gz usr/share/man/man1/{kvcli,kvbench}.1.gz \
    usr/share/bash-completion/completions/{kvserver,kvcli,kvbench} lib/systemd/system/osprey.service \
    etc/osprey/kvserver.flags usr/share/doc/{osprey,libosprey1,libosprey-dev,python3-osprey}/copyright \
    usr/share/doc/osprey/examples/{prometheus.yml,prometheus-alerts.yml,grafana-dashboard.json} \
    usr/include/{osprey.h,osprey/client/{client,buffer,pool,reasons}.h,osprey/rdma/reasons.h}; do
    [[ -s $scratch/x/$file ]] || { echo "no $file"; return 1; }
  done
  has_library libosprey1 'libosprey.so.1' &&
    has_library libosprey-dev 'libosprey.so libosprey_client.a osprey-client.pc osprey-config-version.cmake osprey-config.cmake osprey.pc' &&
    has_library osprey '' || return
  twice=$(for file in osprey libosprey1 libosprey-dev python3-osprey; do dpkg-deb --fsys-tarfile "$scratch/$file.deb" | tar -t; done |
    grep -v '/$' | sort | uniq --repeated)
  [[ -z $twice ]] || { echo "in two packages: $twice"; return 1; }
}

# has_library PACKAGE NAMES: its files below usr/lib are these.
has_library() {
  local names
  names=$(dpkg-deb --fsys-tarfile "$scratch/$1.deb" | tar -t | grep '^\./usr/lib/.*[^/]$' | sed 's|.*/||' | LC_ALL=C sort | tr '\n' ' ')
  [[ ${names% } == "$2" ]] || { echo "$1 has $names"; return 1; }
}

field() { dpkg-deb --field "$scratch/$1.deb" "$2"; }

# The first version of three packages is 0.2.0: an earlier osprey has files of the other two.
packages_need_and_replace_what_they_must() {
  local version name
  version=$(field osprey Version)
  for name in libosprey1 libosprey-dev; do
    [[ $(field "$name" Version) == "$version" ]] || return
    [[ $(field "$name" Breaks) == 'osprey (<< 0.2.0)' && $(field "$name" Replaces) == 'osprey (<< 0.2.0)' ]] || return
  done
  dpkg --compare-versions "$version" ge 0.2.0 || return
  if field osprey Depends | grep libosprey; then return 1; fi
  [[ $(field libosprey-dev Depends) == "libosprey1 (= $version), "*libabsl-dev*libibverbs-dev*librdmacm-dev*libsodium-dev*libxxhash-dev ]]
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

start_server() {
  "$scratch/x/usr/bin/kvserver" --listen="shm://$scratch/outside.socket" --memory=64MiB > "$scratch/ready" &
  server=$!
  for _ in {1..600}; do
    if grep -q '^ready' "$scratch/ready"; then return; fi
    kill -0 "$server" || return
    sleep 0.1
  done
  return 1
}

stop_server() {
  kill "$server"
  wait "$server"
  server=
}

# puts_and_gets COMMAND...: a program of tests/scripts/outside.
puts_and_gets() {
  local got
  got=$(LD_LIBRARY_PATH=$scratch/x/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH) \
    "$1" "shm://$scratch/outside.socket" planet "by $1") || return
  [[ $got == "by $1" ]] || { echo "$1 got '$got'"; return 1; }
}

# block_of PAGE KIND: the first code block of that kind.
block_of() {
  awk -v kind="$2" '
    inside && /^```/ { exit }
    inside { print }
    $0 == "```" kind { inside = 1 }
    END { exit !inside }' "$1" || { echo "$1 has no block $2" >&2; return 1; }
}

# cmake_builds CC CXX: both programs of the project, in C and C++.
cmake_builds() {
  local directory=$scratch/cmake-$1
  mkdir "$directory" && block_of client/README.md cmake > "$directory/page.cmake" || return
  CC=$1 CXX=$2 cmake -S tests/scripts/outside -B "$directory" -DCMAKE_PREFIX_PATH="$scratch/x/usr" &&
    cmake --build "$directory" && puts_and_gets "$directory/planets_c" && puts_and_gets "$directory/planets"
}

# In C++20, where CMake takes the compiler's C++17.
pkg_config_builds() {
  local directory=$scratch/pkg-config-$1 sources=$PWD/tests/scripts/outside
  local -x PKG_CONFIG_PATH
  PKG_CONFIG_PATH=$scratch/x/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)/pkgconfig
  mkdir "$directory" || return
  # shellcheck disable=SC2046  # they are flags
  (cd "$directory" && "$1" -o planets_c "$sources/planets.c" $(pkg-config --cflags --libs osprey) &&
    "$2" -std=c++20 -o planets "$sources/planets.cc" $(pkg-config --cflags --libs osprey-client)) &&
    puts_and_gets "$directory/planets_c" && puts_and_gets "$directory/planets"
}

# c_project VERSION: a project in C alone, for that version.
c_project() {
  mkdir -p "$scratch/c-$1" && cp tests/scripts/outside/planets.c "$scratch/c-$1" || return
  cat > "$scratch/c-$1/CMakeLists.txt" << END
cmake_minimum_required(VERSION 3.25)
project(planets C)
find_package(osprey $1 REQUIRED)
add_executable(planets_c planets.c)
target_link_libraries(planets_c osprey::osprey)
END
  cmake -S "$scratch/c-$1" -B "$scratch/c-$1" -DCMAKE_PREFIX_PATH="$scratch/x/usr" > "$scratch/c-log" 2>&1
}

cmake_takes_c_alone_and_no_other_version() {
  local version present
  present=$(field osprey Version)
  c_project "$present" && cmake --build "$scratch/c-$present" && puts_and_gets "$scratch/c-$present/planets_c" || return
  for version in 0.1 0.999 1; do
    if c_project "$version"; then
      echo "it takes version $version"
      return 1
    fi
    grep -q 'requested version' "$scratch/c-log" || { cat "$scratch/c-log"; return 1; }
  done
}

# From the sources, by the lines that the page prints.
bazel_builds() {
  local directory=$scratch/workspace
  mkdir "$directory" && cp tests/scripts/outside/planets.cc "$directory" || return
  block_of client/README.md starlark > "$scratch/block" && sed "s|/src/osprey|$PWD|" "$scratch/block" > "$directory/WORKSPACE" || return
  block_of client/README.md bazelrc > "$directory/.bazelrc" || return
  cat > "$directory/BUILD" << 'END'
load("@rules_cc//cc:defs.bzl", "cc_binary")

cc_binary(
    name = "planets",
    srcs = ["planets.cc"],
    deps = ["@osprey//client"],
)
END
  (cd "$directory" && bazel --batch --output_base="$scratch/bazel" --host_jvm_args=-Xmx1g build --jobs=2 --symlink_prefix=/ \
    --compilation_mode=fastbuild //:planets && cp "$(bazel --batch --output_base="$scratch/bazel" info \
    --compilation_mode=fastbuild bazel-bin)/planets" "$scratch/by-bazel") &&
    puts_and_gets "$scratch/by-bazel"
}

programs_outside_are_built() {
  start_server || return
  cmake_builds gcc g++ && cmake_builds clang clang++ && pkg_config_builds gcc g++ && pkg_config_builds clang clang++ &&
    cmake_takes_c_alone_and_no_other_version && bazel_builds || return
  stop_server
}

# uses_osprey FOLDER: Python, with the package there, puts and gets over a connection and by a buffer.
uses_osprey() {
  (cd / && PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$1 /usr/bin/python3 -c '
import sys, osprey
with osprey.Client(sys.argv[2]) as client, client.allocate(6) as buffer:
    client.put("planet", b"saturn")
    client.get_into("planet", buffer)
    assert bytes(buffer) == b"saturn" and osprey.__file__.startswith(sys.argv[1])
' "$1" "shm://$scratch/outside.socket")
}

python_packages_work() {
  local debian=$scratch/x/usr/lib/python3/dist-packages wheel=$scratch/wheel folder
  PIP_NO_INDEX=1 PIP_CONFIG_FILE=/dev/null /usr/bin/python3 -m pip install --quiet --target "$wheel" ./client/python || return
  start_server || return
  for folder in "$debian" "$wheel"; do
    uses_osprey "$folder" || return
    # The module alone has another name there.
    diff <(cd client/python/osprey && find . -type f | sort) <(cd "$folder/osprey" && find . -type f -not -name '_core.cpython-*.so' \
      -not -path '*/__pycache__/*' | sort) || return
  done
  stop_server
  [[ $(field python3-osprey Depends) == *'libabsl'*', python3 (>= 3.11), python3 (<< 3.12)' ]]
}

installs_and_runs() {
  tools/lab --timeout="$lab_s_max" -- tests/scripts/package_in_lab "$scratch"/{osprey,libosprey1,libosprey-dev,python3-osprey}.deb
}

with_lab=true
if [[ ${1:-} == --no-lab ]]; then
  with_lab=false
  shift
fi
check "tools/package builds four packages and prints their paths" build "${1:-}"
check "they hold programs, libraries, headers, service, man pages and completion, each once" has_what_it_promises
check "they depend on what they need, and replace the one package of earlier versions" packages_need_and_replace_what_they_must
check "programs outside are built by CMake, pkg-config and Bazel, in C and C++, by gcc and clang, and reach a server" programs_outside_are_built
check "the example flag file explains every flag of --help and no other" flag_file_has_every_flag_once
check "kvserver starts with the defaults that it tells" server_starts_with_the_defaults_of_the_flag_file
check "the man pages are well formed" man_pages_are_right
check "man pages and completion have every flag of --help" pages_and_completion_have_every_flag
check "completion offers commands, their flags, and values" completion_offers_what_may_stand_there
check "python3-osprey and the wheel of pip install, made offline, have the whole package and reach a server" python_packages_work
check "its pages are whole: every link leads to a file of the package" every_link_of_its_pages_leads_somewhere
check "its pages name the programs as they are installed" its_pages_name_programs_as_they_are_installed
check "systemd takes the unit, which allows what RDMA needs" unit_is_right
if $with_lab; then
  check "they install as the pages say, systemd runs its service over RDMA with no more rights than it needs, and they go without a trace" installs_and_runs
fi
echo "$passed passed, $failed failed"
[[ $failed -eq 0 ]]
