# shellcheck shell=bash
# What the tests of the Debian packages share. To be sourced, with $scratch a directory of the test's own.
# shellcheck disable=SC2154  # $scratch

passed=0
failed=0

# check SENTENCE COMMAND...: one case, in the line that tools/test.d/count reads. What the command says is shown only if it fails.
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
