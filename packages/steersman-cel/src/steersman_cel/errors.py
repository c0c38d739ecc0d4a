"""What is not imitated."""

from __future__ import annotations

from steersman.errors import ApiError, ApiStatus, error_from_status


def not_implemented(message: str) -> ApiError:
    """The real server would do it; it is not imitated, and this says so."""
    text = f"the in-memory API server does not imitate this: {message}"
    return error_from_status(ApiStatus(message=text, reason="NotImplemented", code=501))
