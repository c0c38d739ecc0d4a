"""What variables a server knows and what it runs with, asked of its performance schema."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Literal

from ..cluster import Setting, SettingCatalog
from ..server import Server
from .session import logged_in

_SECONDS = 5.0
_VARIABLES = """
    SELECT g.VARIABLE_NAME AS name, g.VARIABLE_VALUE AS value, i.MIN_VALUE AS lowest, i.MAX_VALUE AS highest
    FROM performance_schema.global_variables g
    JOIN performance_schema.variables_info i ON i.VARIABLE_NAME = g.VARIABLE_NAME
"""


async def catalog(server: Server) -> SettingCatalog:
    """All global variables of one server, which may be a replica, by name.

    Raises:
        EngineError: it does not answer in 5 s, or does not let the operator in.
    """
    deadline = asyncio.get_running_loop().time() + _SECONDS
    async with logged_in(server, deadline) as session:
        await session.begin_use(deadline)
        rows = await session.rows("looking at the variables", _VARIABLES)
    return {row["name"]: setting(row) for row in rows}


def setting(row: Mapping[str, Any]) -> Setting:
    """One variable. Its type is told by its value and its bounds, of which switches and texts have none."""
    value, lowest, highest = str(row["value"] or ""), str(row["lowest"] or "0"), str(row["highest"] or "0")
    bounded = (lowest, highest) != ("0", "0")
    kind: Literal["bool", "real", "integer", "string"] = "string"
    if value in ("ON", "OFF") and not bounded:
        kind = "bool"
    elif bounded:
        kind = "real" if "." in value or "." in highest else "integer"
    return Setting(
        name=row["name"],
        value=value,
        kind=kind,
        minimum=lowest if bounded else None,
        maximum=highest if bounded else None,
    )
