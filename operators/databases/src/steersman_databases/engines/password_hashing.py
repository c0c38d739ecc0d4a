"""Comparison of passwords with expensive verifiers, outside of the event loop.

A user may store a verifier with more iterations than the default. One comparison then takes up to 0.1 s, and each new
salt needs another one. So such comparisons share one thread. Its results are cached, and the plan finds them there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from .sql.desired import DesiredDatabase, DesiredUser
from .sql.inspection import Inspection

if TYPE_CHECKING:
    from .sql.sql_engine import SqlEngine

_THREAD = ThreadPoolExecutor(max_workers=1, thread_name_prefix="password hashing")


async def verifies(sql_engine: SqlEngine, password: str, verifier: str | None) -> bool:
    """Return True if the verifier belongs to this password."""
    if verifier is None or not sql_engine.is_expensive(verifier):
        return sql_engine.verifies(password, verifier)
    return await asyncio.get_running_loop().run_in_executor(_THREAD, sql_engine.verifies, password, verifier)


async def verify_expensive(
    sql_engine: SqlEngine, inspection: Inspection, desired: Iterable[DesiredDatabase | DesiredUser]
) -> None:
    """Compare passwords with expensive verifiers before a plan does."""
    for each in desired:
        if not isinstance(each, DesiredUser):
            continue
        second = each.second_credential.password if each.second_credential is not None else None
        for name in {each.name, sql_engine.rotation_username(each.name)} & inspection.users.keys():
            state = inspection.users[name]
            for verifier in (state.verifier, state.second_verifier):
                if verifier is None or not sql_engine.is_expensive(verifier):
                    continue
                for password in (each.password, second):
                    if isinstance(password, str):
                        await verifies(sql_engine, password, verifier)
