"""What somebody changed in an object of ours: what an apply leaves alone, and whether it changed anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import UNSET

from steersman.api.apply.core_v1 import ServiceApply, ServiceSpecApply
from steersman.api.core_v1 import Service
from steersman.client import MergePatch
from steersman.meta import ApplyConfiguration, Object, to_builtins

_FIELDS: Mapping[str, str] = {
    "selector": "selector",
    "externalIPs": "external_ips",
    "publishNotReadyAddresses": "publish_not_ready_addresses",
    "sessionAffinity": "session_affinity",
}
"""Of a Service, what leads clients elsewhere, by the wire's names. Other fields are filled by Kubernetes."""
_UNSAID: Sequence[Any] = ("None", None, False, {}, ())


def repair_of(service: Service, config: ApplyConfiguration[Any]) -> MergePatch | None:
    """What puts back what an apply of ``config`` would not; None where there is nothing of the kind.

    Ports are merged by number: one that was changed by hand would stay beside ours, under the same name. Fields and
    keys that we never said would stay, too.
    """
    assert isinstance(config, ServiceApply) and isinstance(config.spec, ServiceSpecApply)
    present, wanted = service.spec, config.spec
    repair: dict[str, Any] = {}
    ports = () if wanted.ports is UNSET else wanted.ports
    if {port.port for port in present.ports} != {port.port for port in ports}:
        repair["ports"] = to_builtins(ports)
    for name, field in _FIELDS.items():
        if getattr(wanted, field) is UNSET and getattr(present, field) not in _UNSAID:
            repair[name] = None
    selector = frozenset[str]() if wanted.selector is UNSET else wanted.selector.keys()
    if foreign := present.selector.keys() - selector:
        repair["selector"] = dict.fromkeys(foreign)
    if not repair:
        return None
    return MergePatch({"metadata": {"resourceVersion": service.metadata.resource_version}, "spec": repair})


def content_of(obj: Object) -> Any:
    """What people mean by a change of it: without status, versions and managers."""
    content = to_builtins(obj)
    metadata = content.pop("metadata", {})
    content.pop("status", None)
    return content, metadata.get("labels"), metadata.get("annotations"), metadata.get("ownerReferences")
