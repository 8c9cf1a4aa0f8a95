#!/bin/bash
# tools/test.d/count: a suite's results in, "PASSED FAILED" out. What died must never count as nothing.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit

scratch=$(mktemp -d /tmp/count-test.XXXXXX)
trap 'rm -rf "$scratch"' EXIT
failed=0

# expect SENTENCE COUNTS: of what stands in $scratch/results, which is emptied afterwards.
expect() {
  local counts
  counts=$(tools/test.d/count "$scratch/results" 2> "$scratch/err")
  if [[ $counts == "$2" ]]; then
    echo "ok - $1"
  else
    echo "not ok - $1"
    echo "counted '$counts' instead of '$2'"
    cat "$scratch/err"
    failed=1
  fi
  rm -rf "$scratch/results"
  mkdir "$scratch/results"
}

# check_said SENTENCE LINE...: each was said last time.
check_said() {
  local sentence=$1 line
  shift
  for line in "$@"; do
    if ! grep -qxF -- "$line" "$scratch/err"; then
      echo "not ok - $sentence"
      cat "$scratch/err"
      failed=1
      return
    fi
  done
  echo "ok - $sentence"
}

# xml FILE CASE...: googletest's file with cases passed, failed, skipped.
xml() {
  local file=$1 one
  shift
  {
    echo '<?xml version="1.0" encoding="UTF-8"?><testsuites><testsuite name="S">'
    for one in "$@"; do
      case $one in
        passed) echo '<testcase name="a" status="run" result="completed" classname="S" />' ;;
        failed) echo '<testcase name="b" status="run" result="completed" classname="S"><failure message="no"/></testcase>' ;;
        skipped) echo '<testcase name="c" status="run" result="skipped" classname="S"><skipped message="no"/></testcase>' ;;
        disabled) echo '<testcase name="DISABLED_d" status="notrun" result="suppressed" classname="S" />' ;;
      esac
    done
    echo '</testsuite></testsuites>'
  } > "$file"
}

# result LABEL STATUS [XML]: an event of Bazel's.
result() {
  printf '{"id":{"testResult":{"label":"%s","run":1}},"testResult":{"status":"%s","testActionOutput":[%s]}}\n' \
    "$1" "$2" "${3:+{\"name\":\"test.log\",\"uri\":\"file:///log\"\},{\"name\":\"test.xml\",\"uri\":\"file://$3\"\}}"
}

completed() {
  printf '{"id":{"targetCompleted":{"label":"%s"}},%s}\n' "$1" "$2"
}

events=$scratch/results/bazel.json
mkdir "$scratch/results"

xml "$scratch/a b.xml" passed passed disabled
result //tests:a PASSED "$scratch/a%20b.xml" > "$events"
completed //tests:a '"completed":{"success":true}' >> "$events"
expect "cases of a test that passed are counted, disabled ones are not" "2 0"

xml "$scratch/b.xml" passed failed failed
result //tests:b FAILED "$scratch/b.xml" > "$events"
expect "failed cases are counted, and their test is not one more" "1 2"

xml "$scratch/c.xml" passed
result //tests:c FAILED "$scratch/c.xml" > "$events"
expect "a test that ended badly without a failed case is one" "1 1"

result //tests:d TIMEOUT "$scratch/none.xml" > "$events"
expect "a test without results is one failed case" "0 1"

result //tests:e FAILED > "$events"
expect "a test without even a file to name is one failed case" "0 1"

# Bazel's own, where a test wrote none.
cat > "$scratch/n.xml" << 'END'
<?xml version="1.0" encoding="UTF-8"?><testsuites><testsuite name="n" tests="1" failures="0" errors="1">
<testcase name="n" status="run" duration="9" time="9"><error message="Timed out"></error></testcase>
<system-out>first
Generated test.log (if the file is not UTF-8, then this may be unreadable):
<![CDATA[it waits
for b]]></system-out></testsuite></testsuites>
END
result //tests:n TIMEOUT "$scratch/n.xml" > "$events"
expect "a test that Bazel had to end is one failed case" "0 1"
check_said "it is said how it ended, and with what words" "FAILED: //tests:n: Timed out; it ended with:" "for b"

completed //tests:f '"completed":{}' > "$events"
completed //tests:g '"aborted":{"reason":"ANALYSIS_FAILURE"}' >> "$events"
expect "what was not built is a failed case each" "0 2"

xml "$scratch/h.xml" passed skipped
result //tests:h PASSED "$scratch/h.xml" > "$events"
expect "a skipped case is not counted" "1 0"

xml "$scratch/i.xml" skipped skipped
result //tests:i PASSED "$scratch/i.xml" > "$events"
expect "a test of which all was skipped has failed" "0 1"

echo "//tests:j //tests:k //tests:l" > "$scratch/results/expected"
xml "$scratch/results/j.xml" passed passed
echo 0 > "$scratch/results/j.status"
xml "$scratch/results/k.xml" passed
echo 139 > "$scratch/results/k.status"
expect "of tests in the lab, one that crashed and one that never ran have failed" "3 2"

printf 'ok - a\nnot ok - b\nokay\nok - c (3 s)\n' > "$scratch/results/shell.log"
expect "lines of shell tests are counted" "2 1"

echo "//tests:m" > "$scratch/results/expected"
xml "$scratch/results/m.xml" passed
echo 0 > "$scratch/results/m.status"
printf 'ok - a\nnot ok - b\n' > "$scratch/results/shell.log"
expect "lines of shell tests beside tests in the lab are counted" "2 1"

expect "an empty folder counts as nothing" "0 0"

exit $failed
