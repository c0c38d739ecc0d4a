#!/bin/sh
# steersman-postgres ARGUMENTS: the server, as Patroni runs it. A replica begins with the newest timeline that it has
# heard of. A number that was only reserved (timeline.py) is none, and after a promotion that did not come about it
# would be the newest: the server would wait for its log for ever.
set -eu

is_reserved() {
    # Comments, or nothing if it was cut. What cannot be read is somebody's history.
    [ -f "$1" ] || return 1
    grep -qv '^#' "$1" && return 1
    [ $? = 1 ]
}

# As it is started, and not as it is asked for its settings: that may be in the middle of a promotion.
case "${1-} ${3-}" in
'-D --config-file='*)
    for file in $(ls -r "$2/pg_wal" 2>/dev/null | grep '^[0-9A-F]\{8\}\.history$'); do
        is_reserved "$2/pg_wal/$file" || break
        rm "$2/pg_wal/$file" || break
    done
    ;;
esac

exec postgres "$@"
