"""How many files, connections included, this process may have open."""

from __future__ import annotations

from contextlib import suppress

# Far more than anybody watches. Not whatever the system allows, which may be a thousand million: programs that are
# started from here inherit it, and some of them close as many at their start.
_MAX_OPEN_FILES = 65_536


def raise_nofile_limit() -> None:
    """Raises the soft limit towards the hard one, as Go's runtime does for each of its programs.

    Each watch of each namespace is a connection of its own, and many systems begin with a soft limit of 1,024, which
    is there for programs that wait by ``select``. Source: ``getrlimit(2)``.
    """
    try:
        import resource
    except ImportError:
        return  # Windows has no such limit.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = _MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_OPEN_FILES)
    if soft not in (resource.RLIM_INFINITY, -1) and soft < target:
        # Some systems name a hard limit that they do not grant.
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
