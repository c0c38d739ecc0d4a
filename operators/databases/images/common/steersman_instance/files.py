"""Small files for other processes.

They are replaced as a whole.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, cast

MAX_JSON_BYTES = 1 << 20


def replace_file(path: Path, content: str, mode: int = 0o600) -> bool:
    """Write a file atomically unless it has this content. Return True if it was written.

    Args:
        mode: permissions of the new file, from its creation on.
    """
    try:
        if path.read_text() == content:
            return False
    except (FileNotFoundError, UnicodeDecodeError):
        pass
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Processes of two containers write here, and their process ids may be equal.
    temporary = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(content)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return True


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file. Return an empty one if the file is missing, too large or not an object."""
    return find_json(path) or {}


def find_json(path: Path) -> dict[str, Any] | None:
    """Read a JSON object from a file. Return None if the file is missing, too large or not an object."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_JSON_BYTES + 1)
        found: Any = json.loads(content) if len(content) <= MAX_JSON_BYTES else None
    except (OSError, ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None
