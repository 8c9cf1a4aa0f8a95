#!/bin/bash
# What users of tools/lab rely on. Each case boots one or two guests, which takes a few seconds; some cases run at once.
#
#   tests/scripts/lab_test.sh [PATTERN]           only the cases whose function names contain PATTERN (default: all but the rare ones;
#                                                 with OSPREY_TEST_LONG=1 these, too)
#   tests/scripts/lab_test.sh --case MEMORY CASE  one, in a process of its own; its guests have MEMORY MiB, by which its QEMUs are known
# shellcheck disable=SC2016  # single quotes: it is the guest that expands
set -uo pipefail

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
lab=$repository/tools/lab
readonly repository lab
readonly case_s_max=300  # for a heavily loaded machine; 10 s usually
readonly nobody_id=65534
readonly cases_max=40
# What few ever see, and takes long: guests that do not boot, hang or panic, and readers that are slow. And what the suites lab, power,
# exact and torn of tools/test rely on whenever they run.
readonly rare_cases='output_is_complete_when_its_reader_is_slow|the_timeout_ends_a_guest_whose_kernel_hangs|a_kernel_panic_is_told|a_boot_that_fails_is_tried_twice_more|a_guest_whose_clock_is_wrong_boots_again|the_second_nodes_failure_is_told|labs_started_at_once_share_one_cache|one_node_has_rdma_over_ipv4_and_ipv6|two_nodes_read_from_each_other_over_ipv4_and_ipv6|what_was_synced_to_a_disk_is_there_in_the_next_guest|the_exact_guests_clock_counts_instructions_and_skips_idle_time|the_cpu_model_decides_what_the_guest_has'
readonly at_once_max=4   # guests mostly boot, and each has processors of its own for that

# run FLAGS... -- COMMAND...: leaves stdout, stderr and status in $scratch/out, $scratch/err and $status.
run() {
  timeout --kill-after=5 $case_s_max "$lab" "--memory=${memory_mib}MiB" "$@" > "$scratch/out" 2> "$scratch/err" < /dev/null
  status=$?
}

expect_status() { [[ $status -eq $1 ]] || note "exit status $status instead of $1"; }
expect_out() { [[ $(cat "$scratch/out"; echo .) == "$1"$'\n.' ]] || note "stdout is not: $1"; }
expect_in() { grep -qF -- "$2" "$scratch/$1" || note "not in $1: $2"; }
expect_empty() { [[ ! -s $scratch/$1 ]] || note "$1 is not empty"; }

# Why the current case fails.
note() { notes+=("$1"); }

# In the guest. listen N: waits until N servers listen on the RDMA device. peer_listens: the same for node 2, which says
# so by a TCP port. rping READs and WRITEs. perftest would not do: its servers listen twice, once for each connection, and
# its clients do not survive a refusal in between.
readonly wait_functions='
tries() { for i in $(seq 300); do "$@" 2> /dev/null && return; sleep 0.1; done; echo "in vain: $*" >&2; return 1; }
are_listening() { [[ $(rdma resource show cm_id | grep -c LISTEN) -ge $1 ]]; }
can_connect() { : < /dev/tcp/$LAB_PEER_IP/8000; }
listen() { tries are_listening $1; }
peer_listens() { tries can_connect; }
say_so() { python3 -m http.server 8000 > /dev/null 2>&1 & }
'

our_qemus() { pgrep -f "^qemu-system-x86_64 .* -m ${memory_mib}M " || true; }

the_exit_status_is_the_commands() {
  run -- sh -c 'exit 3'
  expect_status 3
  expect_empty out
  expect_empty err
  run -- sh -c 'kill -KILL $$'
  expect_status 137
}

stdout_and_stderr_pass_through_apart_and_byte_for_byte() {
  local bytes=$scratch/bytes
  perl -e "print map { chr } 0..255" > "$bytes"
  for _ in {1..8}; do cat "$bytes" "$bytes" > "$bytes.2" && mv "$bytes.2" "$bytes"; done
  tac "$bytes" > "$bytes.reverse"
  run -- sh -c "cat $bytes; cat $bytes.reverse >&2"
  expect_status 0
  cmp "$bytes" "$scratch/out" || note "stdout differs"
  cmp "$bytes.reverse" "$scratch/err" || note "stderr differs"
}

output_is_complete_when_its_reader_is_slow() {
  "$lab" "--memory=${memory_mib}MiB" -- seq 300000 2> "$scratch/err" | (sleep 12; cat) > "$scratch/out"
  cmp <(seq 300000) "$scratch/out" || note "stdout differs"
}

# The second guest has the disk from an NBD server.
what_was_synced_to_a_disk_is_there_in_the_next_guest() {
  local disk=$scratch/disk server socket="$scratch/50% of & #1"
  truncate --size=64M "$disk" && /sbin/mkfs.ext4 -q -F "$disk"
  run --disk "$disk" -- sh -c 'mkdir /run/disk && mount -t ext4 "$LAB_DISK" /run/disk && echo kept > /run/disk/file && sync /run/disk/file'
  [[ $status -eq 0 ]] || note "writing failed with status $status: $(tail -n 5 "$scratch/err")"
  PYTHONPATH=$repository/tests/durability python3 -B -c 'import random, signal, sys, volatile_disk
volatile_disk.VolatileDisk(sys.argv[1], sys.argv[2], random.Random(1))
signal.pause()' "$disk" "$socket" &
  server=$!
  for _ in {1..600}; do [[ ! -S $socket ]] || break; sleep 0.1; done
  run --disk "$socket" -- sh -c 'mkdir /run/disk && mount -t ext4 "$LAB_DISK" /run/disk && cat /run/disk/file'
  expect_out kept
  kill "$server"
  run --disk "$scratch/none" -- true
  expect_status 2
  expect_in err "there is no file '$scratch/none'"
}

stdin_is_empty_unless_asked_for() {
  echo unseen | "$lab" "--memory=${memory_mib}MiB" -- wc -c > "$scratch/out"
  expect_out 0
  seq 100000 > "$scratch/in"
  "$lab" "--memory=${memory_mib}MiB" --stdin -- md5sum < "$scratch/in" > "$scratch/out"
  expect_out "$(md5sum < "$scratch/in")"
}

arguments_environment_directory_and_umask_arrive_unchanged() {
  local odd=$'two words  "double" \'single\' $HOME `id` \\ *\nnext line\t' 
  mkdir -p "$scratch/a directory"
  pushd "$scratch/a directory" > /dev/null || return
  umask 027
  ODD=$odd run -- sh -c 'printf "%s|" "$@" "$ODD" "$PWD" "$(umask)"; echo' sh "$odd" '' -- --help
  expect_out "$odd||--|--help|$odd|$PWD|0027|"
  umask 022
  popd > /dev/null || return
}

files_written_in_the_guest_are_the_hosts() {
  mkdir -p "$scratch/files"
  run -- sh -c "seq 50000 > $scratch/files/seq; mkdir $scratch/files/d; ln -s x $scratch/files/l"
  expect_status 0
  cmp <(seq 50000) "$scratch/files/seq" || note "the file differs"
  [[ -d $scratch/files/d && -L $scratch/files/l ]] || note "a directory or a link is missing"
}

the_guest_is_told_the_frequency_of_its_tsc() {
  run -- sh -c 'told=$(grep -o "tsc_early_khz=[0-9]*" /proc/cmdline | cut -d= -f2)
    dmesg | grep -q "tsc: Detected ${told%???}\.${told#${told%???}} MHz" && echo "${#told} digits"'
  expect_out '7 digits'
}

the_guest_has_what_9p_cannot_hold() {
  run -- sh -c 'set -e
    for directory in "$TMPDIR" /run /dev/shm; do touch "$directory/x"; stat -f -c %T "$directory"; done
    ulimit -l; id -u; ls /dev/infiniband/rdma_cm; python3 -c "import socket, os
socket.socket(socket.AF_UNIX).bind(os.environ[\"TMPDIR\"] + \"/s\")"'
  expect_status 0
  expect_out $'tmpfs\ntmpfs\ntmpfs\nunlimited\n0\n/dev/infiniband/rdma_cm'
}

an_interrupt_reaches_what_the_command_starts_in_the_background() {
  run -- python3 -c 'import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)'
  expect_out True
}

one_node_has_rdma_over_ipv4_and_ipv6() {
  run -- bash -c "$wait_functions"'
    ibv_devices | grep -o rxe0
    for ip in $LAB_IP $LAB_IP6; do
      rping -s -a $ip -C 5 2> /dev/null & listen 1 && rping -c -a $ip -C 5 && wait $! && echo rping
    done'
  expect_status 0
  expect_out $'rxe0\nrping\nrping'
}

two_nodes_read_from_each_other_over_ipv4_and_ipv6() {
  run --node2 "exec bash -c '$wait_functions"'
    echo "$LAB_NODE $LAB_IP $LAB_PEER_IP"
    rping -s -a $LAB_IP -p 7001 -C 5 & one=$!
    rping -s -a $LAB_IP6 -p 7002 -C 5 & two=$!
    listen 2; say_so; wait $one $two'"'" -- bash -c "$wait_functions"'
    echo $LAB_NODE $LAB_IP $LAB_PEER_IP
    peer_listens && rping -c -a $LAB_PEER_IP -p 7001 -C 5 && rping -c -a $LAB_PEER_IP6 -p 7002 -C 5 && echo rping
    getent hosts node2 | grep -o "^$LAB_PEER_IP"'
  expect_status 0
  expect_out $'1 10.0.0.1 10.0.0.2\nrping\n10.0.0.2'
  expect_in err 'node2: 2 10.0.0.2 10.0.0.1'
}

packets_between_two_nodes_can_be_lost() {
  run --node2 'sleep 1000' -- bash -c '
    cat < /dev/null > /dev/udp/$LAB_PEER_IP/9
    tc qdisc add dev $LAB_NETDEV root netem loss 100% || exit 9
    for i in $(seq 10); do echo x > /dev/udp/$LAB_PEER_IP/9; done
    tc -s qdisc show dev $LAB_NETDEV | grep -Eo "dropped [1-9][0-9]*" | cut -c1-7'
  expect_status 0
  expect_out dropped
}

the_second_nodes_failure_is_told() {
  run --node2 'exit 7' -- sleep 4
  expect_status 0
  expect_in err 'lab: node 2: COMMAND2 ended with status 7'
}

the_end_of_the_command_ends_the_second_node() {
  run --node2 'trap "echo told; exit" TERM; echo -n begun; while :; do sleep 0.1; done' -- sh -c 'sleep 2; exit 5'
  expect_status 5
  expect_in err 'node2: beguntold'
}

a_background_process_does_not_outlive_the_command() {
  run -- sh -c '(trap "" TERM HUP; setsid sleep 1000) & echo left'
  expect_status 0
  expect_out left
}

the_timeout_ends_a_command_that_does_not_end() {
  local began=$SECONDS
  run --timeout=24 -- sh -c 'trap "" TERM; echo begun; while :; do sleep 1; done'
  expect_status 124
  expect_out begun
  expect_in err 'lab: timeout: COMMAND has not ended within 24 s; its guest was ended'
  ((SECONDS - began < 40)) || note "it took $((SECONDS - began)) s"
}

the_timeout_ends_a_guest_whose_kernel_hangs() {
  run --timeout=12 --cpus=1 -- sh -c 'echo begun; sleep 0.5; chrt -f 99 sh -c "echo 1 > /proc/sys/kernel/sysrq
    echo -1 > /proc/sys/kernel/sched_rt_runtime_us; while :; do :; done"'
  expect_status 124
  expect_in err 'lab: timeout: '
}

a_kernel_panic_is_told() {
  run -- sh -c 'echo 1 > /proc/sys/kernel/sysrq; echo c > /proc/sysrq-trigger; sleep 100'
  expect_status 125
  expect_in err "lab: node 1 died; node 1's console ends:"
  expect_in err 'Kernel panic'
}

a_boot_that_fails_is_tried_twice_more() {
  mkdir "$scratch/bin"
  cat > "$scratch/bin/qemu-system-x86_64" << END
#!/bin/sh
case "\$*" in *lab_node=2*) mkdir $scratch/first 2> /dev/null && exit 1 ;; esac
PATH=$PATH exec qemu-system-x86_64 "\$@"
END
  chmod 755 "$scratch/bin/qemu-system-x86_64"
  PATH=$scratch/bin:$PATH run --node2 true -- echo ended
  expect_status 0
  expect_out ended
  expect_in err "lab: node 2 died; node 1's console ends:"
  expect_in err "node 2's console ends:"
  expect_in err 'lab: booting once more'
  rm "$scratch/bin/qemu-system-x86_64"
  printf '#!/bin/sh\nexit 1\n' > "$scratch/bin/qemu-system-x86_64"
  chmod 755 "$scratch/bin/qemu-system-x86_64"
  PATH=$scratch/bin:$PATH run -- true
  expect_status 125
  [[ $(grep -c "lab: node 1 died; node 1's console ends:" "$scratch/err") -eq 3 ]] || note "it is not told three times that node 1 died"
}

# fake_guest SPEEDS...: instead of QEMU, a program that speaks as the lab's init. Its clock runs at the first of SPEEDS in the
# first boot, and so on; the last counts from there. COMMAND is not run.
fake_guest() {
  mkdir -p "$scratch/bin"
  rm -f "$scratch/boots"
  cat > "$scratch/bin/qemu-system-x86_64" << END
#!/usr/bin/python3
import os, re, socket, sys, time
with open("$scratch/boots", "a+") as boots:
    boots.write(".")
    speeds = [float(speed) for speed in "$*".split()]
    speed = speeds[min(boots.tell(), len(speeds)) - 1]
control = socket.socket(fileno=int(re.search(r"id=control,fd=(\d+)", " ".join(sys.argv))[1]))
lines = control.makefile("rw")
def say(text):
    lines.write(text + "\n")
    lines.flush()
def tell_clock():
    say(f"clock {time.monotonic() * speed:.2f}")
say("up")
assert lines.readline() == "clock\n"
tell_clock()
say("ready")
while True:
    word, *length = lines.readline().split()
    if word == "clock":
        tell_clock()
    elif word == "run":
        lines.read(int(length[0]))
        say("done 7")
    else:
        say("exit 0 0")
        time.sleep(1000)
END
  chmod 755 "$scratch/bin/qemu-system-x86_64"
}

a_guest_whose_clock_is_wrong_boots_again() {
  fake_guest 36 0.9 1
  PATH=$scratch/bin:$PATH run -- true
  expect_status 7
  [[ $(grep -c "lab: node 1: its clock advanced by [0-9.]* s in " "$scratch/err") -eq 2 ]] || note "not two clocks are wrong"
  fake_guest 1.1
  PATH=$scratch/bin:$PATH run -- true
  expect_status 125
  [[ $(wc -c < "$scratch/boots") -eq 3 ]] || note "$(wc -c < "$scratch/boots") boots instead of 3"
  fake_guest 1.02
  PATH=$scratch/bin:$PATH run -- true
  expect_status 7
  expect_empty err
}

the_clock_of_an_exact_guest_may_run_at_any_speed() {
  fake_guest 36
  PATH=$scratch/bin:$PATH run --exact -- true
  expect_status 7
  expect_empty err
}

signals_end_the_guest() {
  local signal lab_pid
  for signal in INT TERM; do
    : > "$scratch/out"   # or what the one before said may be taken for this one's
    env --default-signal=INT "$lab" "--memory=${memory_mib}MiB" -- sh -c 'echo begun; sleep 1000' > "$scratch/out" 2> "$scratch/err" &
    lab_pid=$!
    for _ in {1..300}; do grep -q begun "$scratch/out" && break; sleep 0.2; done
    kill -$signal $lab_pid
    wait $lab_pid
    status=$?
    expect_status $((128 + $(kill -l $signal)))
    [[ -z $(our_qemus) ]] || note "QEMU runs on after SIG$signal"
  done
}

the_lab_killed_outright_takes_the_guest_along() {
  "$lab" "--memory=${memory_mib}MiB" -- sh -c 'echo begun; sleep 1000' > "$scratch/out" 2> "$scratch/err" &
  local lab_pid=$!
  for _ in {1..300}; do grep -q begun "$scratch/out" && break; sleep 0.2; done
  kill -KILL $lab_pid
  wait $lab_pid 2> /dev/null
  sleep 0.5
  [[ -z $(our_qemus) ]] || note "QEMU runs on"
}

a_reader_that_leaves_ends_the_guest() {
  "$lab" "--memory=${memory_mib}MiB" -- yes 2> "$scratch/err" | head -1 > "$scratch/out"
  status=${PIPESTATUS[0]}
  expect_status 141
  expect_out y
}

wrong_flags_are_told_with_the_usage() {
  local wrong
  for wrong in --frobnicate --memory=lots --timeout=0 --mtu=99999 --accel=magic ''; do
    # shellcheck disable=SC2086  # nothing at all, for the last
    run $wrong -- ${wrong:+true}
    expect_status 2
    expect_in err 'usage: '
    expect_empty out
  done
  run true
  expect_status 2
  for wrong in --cpus=1 --accel=kvm --node2=true; do
    run --exact $wrong -- true
    expect_status 2
    expect_in err '--exact is one node with one emulated CPU'
  done
  for wrong in --exact --accel=kvm --refresh; do
    run --arm64=/ $wrong -- true
    expect_status 2
    expect_in err '--arm64 is emulated, with the kernel of its root'
  done
  # Where the packages of `arm64` are not installed, it says so.
  for wrong in '' "$scratch"; do
    run --arm64="$wrong" -- true
    expect_status 125
    expect_in err arm64
    expect_empty out
  done
}

the_exact_guests_clock_counts_instructions_and_skips_idle_time() {
  run --exact -- sh -c 'nproc; sleep 1000; python3 -c "import time
def took():
    began = time.monotonic_ns()
    sum(range(100000))
    return time.monotonic_ns() - began
one, two = (min(took() for _ in range(9)) for _ in range(2))
print(abs(one - two) * 1000 <= one or (one, two))"'
  expect_status 0
  expect_out $'1\nTrue'
}

an_unknown_cpu_model_is_told() {
  run --cpu=nonesuch -- true
  expect_status 125
  expect_in err nonesuch
}

the_cpu_model_decides_what_the_guest_has() {
  run --cpu=max,-erms -- sh -c 'grep -cw erms /proc/cpuinfo'
  expect_out 0
  run --cpus=3 --mtu=1500 -- sh -c 'grep -cw erms /proc/cpuinfo; cat /sys/class/net/$LAB_NETDEV/mtu'
  expect_out $'3\n1500'
}

the_guest_gets_no_more_memory_than_the_host_can_spare() {
  run --memory=100000GiB -- sh -c 'awk "/MemTotal/ { print (\$2 > 100000) }" /proc/meminfo'
  expect_status 0
  expect_out 1
  expect_in err 'instead of'
}

# The cache is copied, for /root is closed to others and the kernel need not be downloaded again.
an_ordinary_user_can_use_it() {
  local as_nobody=() home=$scratch/home
  mkdir -p "$home"
  cp -r "${OSPREY_LAB_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/osprey-lab}" "$home/cache"
  if [[ $EUID -eq 0 ]]; then
    chown -R $nobody_id:$nobody_id "$home"
    as_nobody=(setpriv "--reuid=$nobody_id" "--regid=$nobody_id" --clear-groups)
    if ! "${as_nobody[@]}" test -x "$lab"; then
      skip="nobody may not read $repository"
      return
    fi
  fi
  (cd "$home" && OSPREY_LAB_CACHE=$home/cache HOME=$home TMPDIR=/tmp PATH=/usr/bin:/bin timeout $case_s_max \
    "${as_nobody[@]}" "$lab" "--memory=${memory_mib}MiB" -- \
    sh -c 'id -u; touch file; tc qdisc show dev $LAB_NETDEV > /dev/null && echo tc; ls /dev/infiniband/uverbs0; touch /etc/x') \
    > "$scratch/out" 2> "$scratch/err"
  expect_out $'0\ntc\n/dev/infiniband/uverbs0'
  expect_in err 'Permission denied'
  [[ $EUID -ne 0 || $(stat -c %u "$home/file") -eq $nobody_id ]] || note "the file is not the user's"
}

labs_started_at_once_share_one_cache() {
  local cache=$scratch/cache pids=() pid
  mkdir "$cache"
  cp "${OSPREY_LAB_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/osprey-lab}"/*.deb "$cache"
  for _ in 1 2; do
    OSPREY_LAB_CACHE=$cache timeout $case_s_max "$lab" "--memory=${memory_mib}MiB" -- true 2>> "$scratch/err" &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid" || note "a lab failed"; done
  [[ $(find "$cache" -mindepth 1 -maxdepth 1 | wc -l) -eq 3 ]] || note "in the cache: $(ls -A "$cache")"
}

# After each of them. A guest whose lab was killed may take a moment.
nothing_is_left_behind() {
  for _ in {1..25}; do [[ -z $(our_qemus)$(ls -A "$scratch/host-tmp") ]] && return; sleep 0.2; done
  [[ -z $(our_qemus) ]] || note "QEMU runs"
  [[ -z $(ls -A "$scratch/host-tmp") ]] || note "temporary files: $(ls -A "$scratch/host-tmp")"
}

run_case() {
  local sentence=${1//_/ } began=$SECONDS
  notes=()
  skip=
  : > "$scratch/out"
  : > "$scratch/err"
  "$1"
  nothing_is_left_behind
  if [[ -n $skip ]]; then
    echo "skip - $sentence: $skip"
  elif [[ ${#notes[@]} -eq 0 ]]; then
    echo "ok - $sentence ($((SECONDS - began)) s)"
  else
    echo "not ok - $sentence"
    printf '    %s\n' "${notes[@]}"
    head -c 600 "$scratch/out" | sed 's/^/    out: /'
    head -c 1200 "$scratch/err" | sed 's/^/    err: /'
  fi
}

scratch=$(mktemp -d /tmp/lab-test.XXXXXX)
readonly scratch
trap 'rm -rf "$scratch"' EXIT

if [[ ${1:-} == --case ]]; then
  readonly memory_mib=$2
  chmod 755 "$scratch"
  mkdir "$scratch/host-tmp"
  export TMPDIR=$scratch/host-tmp
  run_case "$3" > "$scratch/verdict"
  cat "$scratch/verdict"   # at once: others write, too
  exit
fi

# list_cases PATTERN: "MEMORY CASE" a line. The memory is another for each case, and mostly for each run of this test.
list_cases() {
  local name memory=$((700 + $$ % 25 * cases_max))
  sed -n 's/^\([a-z_0-9]*\)() {$/\1/p' "${BASH_SOURCE[0]}" | grep -vxE 'run|run_case|list_cases|fake_guest|nothing_is_left_behind' |
    while read -r name; do
      memory=$((memory + 1))
      [[ -n $1 || -n ${OSPREY_TEST_LONG:-} || ! $name =~ ^($rare_cases)$ ]] || continue
      [[ $name != *"$1"* ]] || echo "$memory $name"
    done
}

list_cases "${1:-}" > "$scratch/cases"
at_once=$(nproc)
if ((at_once > at_once_max)); then at_once=$at_once_max; fi
xargs -P "$at_once" -L 1 "${BASH_SOURCE[0]}" --case < "$scratch/cases" | tee "$scratch/verdicts"
passed=$(grep -c '^ok - ' "$scratch/verdicts")
skipped=$(grep -c '^skip - ' "$scratch/verdicts")
failed=$(($(wc -l < "$scratch/cases") - passed - skipped))  # one that told nothing has failed, too
echo "$passed passed, $failed failed"
[[ $failed -eq 0 ]]
