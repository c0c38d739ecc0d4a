"""Names of Kubernetes objects and of objects on servers.

The patterns contain what all engines have in common. Webhooks and controllers check further rules of an engine,
and the length in bytes.
"""

from __future__ import annotations

from typing import Annotated

from steersman.meta import Field, Rule

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
SUBDOMAIN = rf"^{_LABEL}(\.{_LABEL})*$"
PRINTABLE = r"^[^\x00-\x1f\x7f-\x9f]*$"
"""No control characters.

Servers refuse such names, and no query can contain a NUL.
"""

# Source: Kubernetes documentation, "Object Names and IDs".
Name = Annotated[str, Field(min_length=1, max_length=253, pattern=SUBDOMAIN)]
Namespace = Annotated[str, Field(min_length=1, max_length=63, pattern=f"^{_LABEL}$")]
Namespaces = Annotated[str, Field(min_length=1, max_length=63, pattern=rf"^([*]|{_LABEL})$")]
"""The name of a namespace, or "*" for all."""
ServiceName = Annotated[str, Field(min_length=1, max_length=63, pattern=f"^{_LABEL}$")]
Key = Annotated[str, Field(min_length=1, max_length=253, pattern="^[-._a-zA-Z0-9]+$")]

SqlName = Annotated[str, Field(min_length=1, max_length=63, pattern=PRINTABLE)]
ObjectName = Annotated[str, Field(min_length=1, max_length=64, pattern=PRINTABLE)]
"""Names of databases and of objects in them. MySQL accepts 64 characters."""

_DNS_LABEL = "([-a-zA-Z0-9]{0,61}[a-zA-Z0-9])?"
_DNS_NAME = rf"^([*][.])?([a-zA-Z0-9]{_DNS_LABEL}[.])*[a-zA-Z]{_DNS_LABEL}$"
_BYTE = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4 = rf"^({_BYTE}[.]){{3}}{_BYTE}$"
_GROUP = "[0-9a-fA-F]{1,4}"
_IPV6 = rf"^({_GROUP}:){{7}}{_GROUP}$"
_IPV6_SHORT = rf"^({_GROUP}(:{_GROUP})*)?::({_GROUP}(:{_GROUP})*)?$"
HostName = Annotated[
    str,
    Field(
        max_length=253,
        rules=(
            # isIP is known from Kubernetes 1.31 on.
            Rule(
                rule=f"self.matches('{_DNS_NAME}') || self.matches('{_IPV4}') || self.matches('{_IPV6}') ||"
                f" (self.matches('{_IPV6_SHORT}') && self.split(':').filter(g, g != '').size() < 8)",
                message="must be a DNS name, such as db.example.com, or an IP address",
            ),
        ),
    ),
]
