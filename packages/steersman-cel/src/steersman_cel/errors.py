"""The error for unimplemented functions."""

from __future__ import annotations

from steersman.errors import ApiError, ApiStatus, error_from_status


def not_implemented(message: str) -> ApiError:
    """Error 501: the in-memory API server does not support this rule."""
    text = f"the in-memory API server does not implement this: {message}"
    return error_from_status(ApiStatus(message=text, reason="NotImplemented", code=501))
