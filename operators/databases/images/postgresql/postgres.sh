#!/bin/sh
# steersman-postgres ARGUMENTS: the server, as Patroni runs it. A replica begins with the newest timeline that it has
# heard of. A number that steersman-timeline only reserved is none, and after a promotion that did not come about it
# would be the newest: the server would wait for its log for ever.
set -eu

if [ "${1-}" = -D ]; then
    unused=
    for file in "$2"/pg_wal/????????.history; do
        [ -e "$file" ] || continue
        first=
        IFS= read -r first <"$file" || true
        case $first in
        '' | '#'*) unused="$unused $file" ;;
        *) unused= ;;
        esac
    done
    # shellcheck disable=SC2086  # several names, without spaces
    [ -z "$unused" ] || rm $unused
fi

exec postgres "$@"
