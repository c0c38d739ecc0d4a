"""The limit of open files and connections of the process."""

from __future__ import annotations

from contextlib import suppress

# Enough for all watches. The hard limit may be 10^9: child processes inherit the limit, and some close that many file
# descriptors when they start.
_MAX_OPEN_FILES = 65_536


def raise_nofile_limit() -> None:
    """Raise the soft limit to the hard limit, at most 65,536.

    Go's runtime does the same. Each watch has a connection, and the usual soft limit of 1,024 exists only for
    programs that use ``select``.
    Source: ``getrlimit(2)``.
    """
    try:
        import resource
    except ImportError:
        return  # Windows has no such limit.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = _MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_OPEN_FILES)
    if soft not in (resource.RLIM_INFINITY, -1) and soft < target:
        # Some systems report a hard limit that they do not grant.
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
