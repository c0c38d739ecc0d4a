#!/bin/sh
# steersman-instance: programs that run beside the server; steersman_instance/__main__.py lists them.
exec /usr/bin/python3 -I -m steersman_instance "$@"
