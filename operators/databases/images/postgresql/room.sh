#!/bin/sh
# steersman-room CLUSTER: Patroni's pre_promote. A promotion begins a segment of the log: without room for one the server
# stops, and is elected again. Who led last, or may have, waits for room, read-only; others give the lock back at once.
# The wait ends: Patroni asks nobody else as long as one has the lock. It then leaves this one out for a ttl.
set -u

segment=$(pg_controldata /var/lib/steersman/data/pgdata 2>/dev/null | sed -n 's/^Bytes per WAL segment: *//p')
patience=120 # seconds; a volume that is made larger is so by then
log=/var/lib/steersman/wal
[ -d "$log" ] || log=/var/lib/steersman/data

has_room() {
    # shellcheck disable=SC2046  # two numbers: blocks that are free, and their size
    set -- $(stat --file-system --format='%a %S' "$log")
    [ "$(($1 * $2))" -ge "${segment:-16777216}" ]
}

give_back() {
    echo "steersman: no room to become the primary" >&2
    exit 1
}

has_room && exit 0
steersman-role former "$1" || give_back
echo "steersman: waiting for room to go on as the primary" >&2
until has_room; do
    [ $((patience -= 1)) -ge 0 ] || give_back
    sleep 1
done
