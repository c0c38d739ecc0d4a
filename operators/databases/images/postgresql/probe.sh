#!/bin/sh
# steersman-probe startup|liveness|readiness, for the kubelet.
set -u

data=/var/lib/steersman/data/pgdata
socket=/run/steersman/.s.PGSQL.5432

# 0 serves, 1 answers but recovers, starts or stops, 2 does not answer.
ask() { pg_isready --quiet --host="${socket%/*}" --timeout=3; }

# A server that recovers may need hours. To kill it is to make it begin again.
lives() {
    [ -S "$socket" ] || return 0
    ask
    [ $? -le 1 ]
}

case ${1-} in
readiness) ask ;;
liveness) lives ;;
startup) [ -e "$data/PG_VERSION" ] && lives ;;
*)
    echo "usage: steersman-probe startup|liveness|readiness" >&2
    exit 64
    ;;
esac
