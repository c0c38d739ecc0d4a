"""Which parameters a server would not start with, played by a program that does not know some of them."""

from __future__ import annotations

from pathlib import Path

from steersman_agent.server.process import MySQLServer, ServerPaths

MYSQLD = """#!/bin/sh
for word in wrong broken; do
    if grep -q "^$word = " "${1#--defaults-file=}"; then
        echo "2026-11-22 [ERROR] [MY-000067] [Server] /usr/sbin/mysqld: unknown variable '$word=1'" >&2
        exit 7
    fi
done
"""


def server(directory: Path) -> MySQLServer:
    program = directory / "mysqld"
    program.write_text(MYSQLD)
    program.chmod(0o755)
    return MySQLServer(
        ServerPaths(volume=directory, run=directory, defaults=Path("/dev/null"), program=(str(program),))
    )


def test_invalid_parameter_alone_is_rejected(tmp_path: Path) -> None:
    declared = {"right": "1", "wrong": "1"}
    assert server(tmp_path).rejected_parameters({"port": "3306"}, declared) == {"wrong": "unknown variable 'wrong=1'"}
    assert server(tmp_path).rejected_parameters({"port": "3306"}, {"right": "1"}) == {}


def test_operator_option_error_rejects_no_parameter(tmp_path: Path) -> None:
    assert server(tmp_path).rejected_parameters({"broken": "1"}, {"right": "1", "wrong": "1"}) == {}
