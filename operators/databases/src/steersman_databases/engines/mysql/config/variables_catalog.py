"""Variables that a server knows, and their values, from the performance schema."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Literal

from steersman_databases.engines.cluster_engine import Setting, SettingCatalog
from steersman_databases.engines.server import DatabaseServer

from ..sql.session import logged_in

_TIMEOUT_SECONDS = 5.0
_VARIABLES = """
    SELECT g.VARIABLE_NAME AS name, g.VARIABLE_VALUE AS value, i.MIN_VALUE AS lowest, i.MAX_VALUE AS highest
    FROM performance_schema.global_variables g
    JOIN performance_schema.variables_info i ON i.VARIABLE_NAME = g.VARIABLE_NAME
"""


async def variables(server: DatabaseServer) -> SettingCatalog:
    """Return all global variables of a server by name.

    The server may be a replica.

    Raises:
        EngineError: it does not respond in 5 s, or refuses the login.
    """
    deadline = asyncio.get_running_loop().time() + _TIMEOUT_SECONDS
    async with logged_in(server, deadline) as session:
        await session.begin_use(deadline)
        rows = await session.rows("inspecting the variables", _VARIABLES)
    return {row["name"]: setting_of(row) for row in rows}


def setting_of(row: Mapping[str, Any]) -> Setting:
    """Convert a row to a setting.

    The type follows from the value and the bounds. Booleans and texts have no bounds.
    """
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
