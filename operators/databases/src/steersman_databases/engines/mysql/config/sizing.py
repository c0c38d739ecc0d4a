"""Parameters of MySQL that follow from the limits of an instance. A running server applies all but the instances.

Source: MySQL 9.7 Reference Manual, "Configuring InnoDB Buffer Pool Size", "Internal Temporary Table Use in MySQL"
and "Group Replication System Variables".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...cluster_engine import InstanceResources, SizedParameter
from .parameters import parse_number

_MIB = 1 << 20
_GIB = 1 << 10  # MiB
_SERVER_MIB = 384
"""Memory of a server without connections and with an empty buffer pool, in MiB. Measured: 335 MiB."""
_CONNECTION_MIB = 1
_DEFAULT_CONNECTIONS = 151
_CHUNK_MIB = 128
"""Default of ``innodb_buffer_pool_chunk_size`` in MiB: InnoDB rounds the pool up to chunks of all its instances."""
_SINGLE_INSTANCE_MIB = _GIB
"""InnoDB divides only a larger buffer pool into instances, in MiB."""
_INSTANCE_MIB = 4 * _GIB
"""Memory limit for each instance of the buffer pool, in MiB. The server's default depends on the CPUs of the node."""
_MOST_INSTANCES = 8
_SMALLEST_POOL_MIB = 64
_DEFAULT_REDO_MIB = 100
_LARGEST_NUMBER = float(1 << 62)
_LARGE_MIB = 4 * _GIB
"""Memory limit from which on the image's small table caches are raised, in MiB."""


def sized_parameters(
    resources: InstanceResources, declared: Mapping[str, str], storage_bytes: int
) -> Iterator[SizedParameter]:
    """Yield the parameters for these limits, some of which may be declared.

    The lowest limit of all pods counts, because a value takes effect at once.

    Args:
        resources: limits of the instances.
        declared: the user's parameters, on which others depend.
        storage_bytes: size of the data volume.
    """
    memory = resources.smallest_memory // _MIB
    temporary = min(max(memory // 16, 16), _GIB)
    messages = min(max(memory // 8, 128), _GIB)
    others = (
        _SERVER_MIB
        + _CONNECTION_MIB * _declared_number(declared, "max_connections", _DEFAULT_CONNECTIONS)
        + _declared_mib(declared, "temptable_max_ram", temporary)
        + messages
    )
    instances = min(max(resources.memory // _MIB // _INSTANCE_MIB, 1), _MOST_INSTANCES)
    pool = _buffer_pool(memory, memory - others, declared, instances)
    yield SizedParameter(
        "innodb_buffer_pool_size",
        f"{pool}M",
        "55 % of the memory limit, less where the server needs 384 MiB, 1 MiB per connection, temptable_max_ram and "
        "the message cache; at least 64 MiB",
    )
    if "innodb_buffer_pool_size" not in declared:
        yield SizedParameter(
            "innodb_buffer_pool_instances",
            str(instances if pool > _SINGLE_INSTANCE_MIB else 1),
            "1 for each 4 GiB of the memory limit, from 1 to 8; 1 for a buffer pool of at most 1 GiB",
        )
    redo = min(pool // 2, storage_bytes // _MIB // 16, 8 * _GIB)
    if redo > _DEFAULT_REDO_MIB:
        rule = "half of the buffer pool, at most 1/16 of the volume and 8 GiB"
        yield SizedParameter("innodb_redo_log_capacity", f"{redo}M", rule)
    yield SizedParameter("temptable_max_ram", f"{temporary}M", "1/16 of the memory limit, from 16 MiB to 1 GiB")
    rule = "1/8 of the memory limit, from 128 MiB to 1 GiB"
    yield SizedParameter("group_replication_message_cache_size", f"{messages}M", rule)
    if memory >= _LARGE_MIB:
        rule = "memory limit of at least 4 GiB"
        yield SizedParameter("table_open_cache", "4000", rule)
        yield SizedParameter("table_definition_cache", "2000", rule)


def _buffer_pool(memory: int, free: int, declared: Mapping[str, str], instances: int) -> int:
    """Return the size in MiB. InnoDB does not round it up.

    Args:
        memory: limit in MiB.
        free: what other parts of the server leave of it, in MiB.
        instances: of the pool, unless they are declared.
    """
    chunk = max(_declared_mib(declared, "innodb_buffer_pool_chunk_size", _CHUNK_MIB), 1)
    size = min(memory * 55 // 100, free) // chunk * chunk
    if size >= _SINGLE_INSTANCE_MIB:
        unit = chunk * max(_declared_number(declared, "innodb_buffer_pool_instances", instances), 1)
        # The fallback is one instance's, whatever is declared.
        size = max(size // unit * unit, (_SINGLE_INSTANCE_MIB - 1) // chunk * chunk)
    return max(size, _SMALLEST_POOL_MIB)


def _declared_mib(declared: Mapping[str, str], name: str, default: int) -> int:
    return _declared_number(declared, name, default * _MIB) // _MIB


def _declared_number(declared: Mapping[str, str], name: str, default: int) -> int:
    number = parse_number(declared.get(name, ""))
    return default if number is None else int(min(number, _LARGEST_NUMBER))
