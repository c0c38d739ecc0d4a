#!/bin/sh
# pgbackrest-archive FILE: PostgreSQL's archive command. Exit code 0 means that PostgreSQL may remove the file.
# What needs no Python is decided here: with many waiting files its start would take the longest.

# No object store is declared.
[ -s /etc/steersman/backup/store.json ] || exit 0

# No server runs: Patroni hands over each waiting file before pg_rewind. Replicas have these files as well.
data=/var/lib/steersman/data/pgdata
read -r server 2> /dev/null < "$data/postmaster.pid" || exit 1
[ "/proc/$server/cwd" -ef "$data" ] || exit 1

exec /usr/bin/python3 -I -m steersman_instance archive "$1"
