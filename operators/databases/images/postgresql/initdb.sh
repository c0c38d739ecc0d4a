#!/bin/sh
# steersman-initdb ARGUMENTS: initdb, as Patroni runs it. Its error becomes the termination message of the container.
set -u

errors=$(mktemp)
initdb "$@" 2>"$errors"
status=$?
cat "$errors" >&2
if [ "$status" != 0 ]; then
    because=$(sed -n 's/^initdb: \(error\|detail\): //p' "$errors" | tr '\n' ' ')
    echo "initdb failed: ${because% }. Correct spec.bootstrap.initdb" >"${TERMINATION_LOG:-/dev/termination-log}"
fi
rm -f "$errors"
exit "$status"
