#!/usr/bin/env bash
# Usage: deflake.sh PACKAGE [TEST]
# Runs the tests of a package (those that match the pattern TEST) with the race detector, in random order and beside
# two busy loops, again and again, until one fails or 20 minutes are over.
set -uo pipefail
export CI=true # a test that cannot run on this machine fails

package=${1:?usage: make deflake PKG=./internal/agent [RUN=TestName]} pattern=${2:-.}
binary=$(mktemp) end=$((SECONDS + 1200)) busy=()
trap 'kill "${busy[@]}" 2>/dev/null; rm -f "$binary"' EXIT
"${GO:-go}" test -race -c -o "$binary" "$package" || exit 1
cd "$("${GO:-go}" list -f '{{.Dir}}' "$package")" || exit 1
for _ in 1 2; do
	while :; do :; done &
	busy+=($!)
done
for ((run = 1; SECONDS < end; run++)); do
	out=$("$binary" -test.run "$pattern" -test.shuffle=on -test.timeout=30m 2>&1)
	status=$?
	if [ "$status" -ne 0 ] || grep -q 'no tests to run' <<<"$out"; then
		echo "$out"
		echo "run $run failed"
		exit 1
	fi
	echo "run $run passed, $((end - SECONDS)) s left"
done
