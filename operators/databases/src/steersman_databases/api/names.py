"""How things are called: objects as Kubernetes takes it, and what is on servers as far as all engines agree.

What one engine alone refuses, and how long a name is in bytes, the webhooks and controllers say.
"""

from __future__ import annotations

from typing import Annotated

from steersman.meta import Field

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
SUBDOMAIN = rf"^{_LABEL}(\.{_LABEL})*$"
PRINTABLE = r"^[^\x00-\x1f\x7f-\x9f]*$"
"""No control characters: no server has a name with any, and a NUL none can even look for."""

# Source: Kubernetes documentation, "Object Names and IDs".
Name = Annotated[str, Field(min_length=1, max_length=253, pattern=SUBDOMAIN)]
Namespace = Annotated[str, Field(min_length=1, max_length=63, pattern=f"^{_LABEL}$")]
Namespaces = Annotated[str, Field(min_length=1, max_length=63, pattern=rf"^([*]|{_LABEL})$")]
"""One of them, or each one."""
ServiceName = Annotated[str, Field(min_length=1, max_length=63, pattern=f"^{_LABEL}$")]
Key = Annotated[str, Field(min_length=1, max_length=253, pattern="^[-._a-zA-Z0-9]+$")]

SqlName = Annotated[str, Field(min_length=1, max_length=63, pattern=PRINTABLE)]
ObjectName = Annotated[str, Field(min_length=1, max_length=64, pattern=PRINTABLE)]
"""Of databases, and of what is in them: MySQL takes 64 characters."""
