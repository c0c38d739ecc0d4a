#!/bin/sh
# steersman-agent [fenced]: process 1 of a member's container, with the server below it.
exec python3 -I -m steersman_agent "$@"
