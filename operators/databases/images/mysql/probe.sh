#!/bin/sh
# steersman-probe startup|liveness|readiness, for the kubelet.
set -u

data=/var/lib/steersman/data/mysql
socket=/run/steersman/mysqld.sock

# ask SOCKET is the engine's own.
. /usr/local/lib/steersman/engine.sh

# The socket appears when recovery is over, which may take hours. To kill the server is to make it begin again.
lives() { [ ! -S "$socket" ] || ask "$socket"; }

case ${1-} in
readiness) ask "$socket" ;;
liveness) lives ;;
startup) [ -d "$data" ] && lives ;;
*)
    echo "usage: steersman-probe startup|liveness|readiness" >&2
    exit 64
    ;;
esac
