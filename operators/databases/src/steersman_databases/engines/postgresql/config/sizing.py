"""Parameters of PostgreSQL that follow from the limits of an instance.

Source: PostgreSQL 18 documentation, 19.4 "Resource Consumption" and 19.7 "Query Planning".
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from ...cluster_engine import InstanceResources, SizedParameter
from .parameters import fixed_memory

_MIB = 1 << 20
_DEFAULT_CONNECTIONS = 100
_DEFAULT_WORKERS = 8
_MAX_WORKERS_PER_QUERY = 4
_IO_WORKERS_SINCE = 18
_DEFAULT_IO_WORKERS = 3
_MAX_IO_WORKERS = 32


def sized_parameters(
    resources: InstanceResources, declared: Mapping[str, str], version: int
) -> Iterator[SizedParameter]:
    """Yield the parameters for these limits, some of which may be declared.

    While pods with a lower limit run, the values fit into these. Only `shared_buffers` follows the new limit before
    that, up to half of the lowest one: it needs a restart, which then is the one that recreates the pod.

    Args:
        resources: limits of the instances.
        declared: the user's parameters, on which others depend.
        version: major version.
    """
    memory, smallest = resources.memory // _MIB, resources.smallest_memory // _MIB
    buffers = max(min(memory // 4, smallest // 2), 1)
    yield SizedParameter("shared_buffers", f"{buffers}MB", "25 % of the memory limit")
    yield SizedParameter("effective_cache_size", f"{max(smallest * 7 // 10, 1)}MB", "70 % of the memory limit")
    maintenance = min(max(smallest // 16, 1), 1024)
    yield SizedParameter("maintenance_work_mem", f"{maintenance}MB", "1/16 of the memory limit, at most 1 GB")
    yield SizedParameter(
        "work_mem",
        f"{_work_mem(smallest, buffers, declared)}MB",
        "memory limit less shared_buffers, divided by 4 x max_connections; from 4 MB to 64 MB",
    )
    yield SizedParameter("random_page_cost", "1.1", "storage with fast random reads")
    yield SizedParameter("effective_io_concurrency", "200", "storage with fast random reads")
    yield SizedParameter("wal_compression", "lz4", "less WAL for little CPU time")
    if resources.cpus is not None:
        yield from _parallelism(math.ceil(resources.cpus))
        workers = min(math.ceil(resources.cpus) // 4, _MAX_IO_WORKERS)
        if version >= _IO_WORKERS_SINCE and workers > _DEFAULT_IO_WORKERS:
            yield SizedParameter("io_workers", str(workers), "1/4 of the CPU limit, from 3 to 32")


def _work_mem(memory: int, buffers: int, declared: Mapping[str, str]) -> int:
    """Return the value in MB, for sessions that use it four times each."""
    buffers_bytes = fixed_memory("shared_buffers", declared.get("shared_buffers", ""))
    buffers = buffers if buffers_bytes is None else buffers_bytes // _MIB
    connections = declared.get("max_connections", "").strip()
    sessions = int(connections) if connections.isdecimal() else _DEFAULT_CONNECTIONS
    return min(max((memory - buffers) // (4 * max(sessions, 1)), 4), 64)


def _parallelism(cpus: int) -> Iterator[SizedParameter]:
    per_query = str(min(cpus // 2, _MAX_WORKERS_PER_QUERY))
    if cpus > _DEFAULT_WORKERS:
        yield SizedParameter("max_worker_processes", str(cpus), "the CPU limit, at least 8")
    yield SizedParameter("max_parallel_workers", str(cpus), "the CPU limit")
    rule = "half of the CPU limit, at most 4"
    yield SizedParameter("max_parallel_workers_per_gather", per_query, rule)
    yield SizedParameter("max_parallel_maintenance_workers", per_query, rule)
