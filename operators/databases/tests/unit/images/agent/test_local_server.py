"""The connection that is kept for looking and adjusting."""

from __future__ import annotations

from unittest import mock

import pymysql
import pytest

from steersman_agent.group.group_status import LocalServer, ServerQueryFailed


def connection(error: Exception) -> mock.MagicMock:
    """One whose statements end so."""
    made = mock.MagicMock()
    made.cursor.return_value.__enter__.return_value.execute.side_effect = error
    return made


@pytest.mark.parametrize(("code", "connections"), [(2013, 2), (1231, 1)], ids=["lost", "refused"])
def test_lost_connection_is_reopened_rejected_is_not(
    monkeypatch: pytest.MonkeyPatch, code: int, connections: int
) -> None:
    """All others may be taken by clients: it is given up only where it is gone."""
    gone = pymysql.OperationalError(code, "words")
    connect = mock.Mock(side_effect=[connection(gone), connection(gone)])
    monkeypatch.setattr(pymysql, "connect", connect)
    server = LocalServer("socket")
    for _ in range(2):
        with pytest.raises(ServerQueryFailed, match="words"):
            server.set_global_kept("max_connections", 1)
    assert connect.call_count == connections
