#!/bin/sh
# steersman-member startup|liveness|readiness, for the kubelet: what the agent last said of itself.
set -u

# When, in seconds since boot; `ready` or `waiting`; why.
read -r at state because 2>/dev/null </run/steersman/member || {
    echo "the agent has not said anything yet"
    exit 1
}
read -r now _ </proc/uptime
# Longer than all its calls together take to fail. A slow server is no reason: the agent looks and says so.
silent=$((${now%%.*} - at))
[ "$silent" -lt 90 ] || {
    echo "the agent has been silent for $silent seconds"
    exit 1
}

case ${1-} in
startup | liveness) ;;
readiness)
    echo "$because"
    [ "$state" = ready ]
    ;;
*)
    echo "usage: steersman-member startup|liveness|readiness" >&2
    exit 64
    ;;
esac
