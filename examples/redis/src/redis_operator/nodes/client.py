"""Client for real nodes, based on redis-py."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from redis.asyncio import Connection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, ConnectionError, ResponseError, TimeoutError
from redis.exceptions import RedisError as Refused

from redis_operator.nodes.protocol import Address, Command, LoginRejected, RedisError, Reply, Unreachable


class RedisPyClient:
    """Opens a connection for each batch of commands."""

    async def execute(self, address: Address, password: str, *commands: Command, timeout: float = 5.0) -> list[Reply]:
        connection = Connection(
            host=address.ip,
            port=address.port,
            password=password,
            protocol=2,
            decode_responses=True,
            # Keys that are not valid UTF-8 keep their bytes.
            encoding_errors="surrogateescape",
            socket_timeout=timeout,
            retry=Retry(NoBackoff(), 0),
            driver_info=None,
        )
        try:
            async with asyncio.timeout(timeout):
                return await _execute(connection, commands)
        except AuthenticationError as error:
            raise LoginRejected(f"{address}: {error}") from error
        except (OSError, ConnectionError, TimeoutError) as error:
            raise Unreachable(f"{address} is unreachable: {str(error) or type(error).__name__}") from error
        finally:
            await connection.disconnect(nowait=True)


async def _execute(connection: Connection, commands: tuple[Command, ...]) -> list[Reply]:
    await connection.connect()
    packed = cast("Any", connection).pack_commands(commands)
    await connection.send_packed_command(packed, check_health=False)
    replies: list[Reply] = []
    first_error: Refused | None = None
    for _ in commands:
        try:
            replies.append(cast("Reply", await connection.read_response()))
        except ResponseError as error:
            first_error = first_error or error
    if first_error is not None:
        raise RedisError(str(first_error)) from first_error
    return replies
