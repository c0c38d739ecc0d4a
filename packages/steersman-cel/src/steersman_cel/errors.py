"""What is not imitated."""

from __future__ import annotations

from steersman.errors import ApiError, Status, error_from_status


def refused_here(message: str) -> ApiError:
    """The real server would do it; it is not imitated, and this says so."""
    text = f"the in-memory API server does not imitate this: {message}"
    return error_from_status(Status(message=text, reason="NotImplemented", code=501))
