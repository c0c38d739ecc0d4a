"""Caches of results without their arguments.

The arguments may be large or secret.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

# Without it, digests in a core dump would show which passwords are equal.
_KEY = secrets.token_bytes(32)


def cached_by_digest(maxsize: int) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a function of texts, bytes and integers. Errors are not cached. Several threads may call it.

    Args:
        maxsize: number of results. The least recently used one is dropped.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        results: OrderedDict[bytes, R] = OrderedDict()
        lock = threading.Lock()

        @wraps(function)
        def cached(*args: P.args, **kwargs: P.kwargs) -> R:
            key = _digest(args, kwargs)
            with lock:
                if key in results:
                    results.move_to_end(key)
                    return results[key]
            result = function(*args, **kwargs)
            with lock:
                results[key] = result
                if len(results) > maxsize:
                    results.popitem(last=False)
            return result

        return cached

    return decorate


def _digest(args: tuple[object, ...], kwargs: dict[str, object]) -> bytes:
    digest = hashlib.blake2b(key=_KEY, digest_size=32)
    for value in (*args, *(part for item in sorted(kwargs.items()) for part in item)):
        text = value if isinstance(value, bytes) else str(value).encode(errors="surrogatepass")
        digest.update(f"{type(value).__name__}:{len(text)}:".encode())
        digest.update(text)
    return digest.digest()
