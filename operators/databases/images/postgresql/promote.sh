#!/bin/sh
# steersman-promote CLUSTER: Patroni's pre_promote. Where it ends with an error, Patroni gives the lock back.
set -eu

steersman-room "$1"
exec steersman-timeline "$1"
