"""What no two Services have: cluster addresses and node ports.

The range of addresses is each cluster's own: here, every address is in it. Source: ``pkg/registry/core/service``.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address
from random import Random

from steersman.testing.apiserver import failures
from steersman.testing.apiserver.failures import FieldError, invalid_value, shown
from steersman.testing.apiserver.kinds import GroupResource, Kind
from steersman.testing.apiserver.storage import Storage, Stored
from steersman.testing.apiserver.values import JsonObject, list_at, map_at

_SERVICES = GroupResource("", "services")
_NODE_PORTS = range(30000, 32768)
_RANGE = "provided port is not in the valid range. The range of valid ports is 30000-32767"
_NO_ADDRESS = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"


def allocate(storage: Storage, kind: Kind, obj: JsonObject, old: Stored | None, random: Random) -> None:
    """Gives a Service the address and the ports that it needs, in place.

    Args:
        obj: to be stored in place of ``old``, if that is one.

    Raises:
        ApiError: 422, it asks for some that another has.
    """
    if kind.collection != _SERVICES:
        return
    others = [s.object for s in storage.list(_SERVICES) if old is None or s.uid != old.uid]
    # Nothing of what is stored already is changed.
    spec: JsonObject = {**map_at(obj, "spec")}
    spec["ports"] = [{**port} for port in list_at(spec, "ports")]
    if not spec["ports"]:
        del spec["ports"]
    obj["spec"] = spec
    before: JsonObject = {} if old is None else map_at(old.object, "spec")
    _give_back(spec, before)
    errors = list(_address(spec, others, random)) if not _has_address(before) else []
    errors += _ports(spec, others, random)
    if errors:
        raise failures.invalid(kind.resource, obj["metadata"].get("name", ""), errors)


def _has_address(spec: JsonObject) -> bool:
    return spec.get("type", "ExternalName") != "ExternalName"


def _has_node_ports(spec: JsonObject) -> bool:
    return spec.get("type") in ("NodePort", "LoadBalancer")


def _give_back(spec: JsonObject, before: JsonObject) -> None:
    """Takes away what a Service of the type that it is now does not have, where nobody asked for another."""
    if _has_address(before) and not _has_address(spec) and spec.get("clusterIP") == before.get("clusterIP"):
        for field in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
            spec.pop(field, None)
    types = {
        "internalTrafficPolicy": ("ClusterIP", "NodePort", "LoadBalancer"),
        "externalTrafficPolicy": ("NodePort", "LoadBalancer"),
        "allocateLoadBalancerNodePorts": ("LoadBalancer",),
    }
    for field, having in types.items():
        lost = before.get("type") in having and spec.get("type") not in having
        if lost and spec.get(field) == before.get(field):
            spec.pop(field, None)
    former = [p.get("nodePort") for p in list_at(before, "ports")]
    ports = list_at(spec, "ports")
    if _has_node_ports(before) and not _has_node_ports(spec) and [p.get("nodePort") for p in ports] == former:
        for port in ports:
            port.pop("nodePort", None)


def _address(spec: JsonObject, others: list[JsonObject], random: Random) -> Iterator[FieldError]:
    if not _has_address(spec):
        return
    taken = {map_at(o, "spec").get("clusterIP") for o in others} - {"None", ""}
    wanted: str = spec.get("clusterIP", "")
    if not wanted:
        wanted = _drawn_address(random)
        while wanted in taken:
            wanted = _drawn_address(random)
        spec["clusterIP"] = wanted
    elif wanted in taken:
        text = f"failed to allocate IP {wanted}: provided IP is already allocated"
        yield invalid_value("spec.clusterIPs", [wanted], text)
    elif wanted != "None" and not _is_address(wanted):
        yield invalid_value("spec.clusterIPs[0]", wanted, _NO_ADDRESS)
    spec.setdefault("clusterIPs", [wanted])
    spec.setdefault("ipFamilies", ["IPv4"])
    spec.setdefault("ipFamilyPolicy", "SingleStack")


def _drawn_address(random: Random) -> str:
    return f"10.96.{random.randrange(256)}.{random.randrange(1, 255)}"


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _ports(spec: JsonObject, others: list[JsonObject], random: Random) -> Iterator[FieldError]:
    if not _has_node_ports(spec):
        return
    taken = {p.get("nodePort") for o in others for p in list_at(map_at(o, "spec"), "ports")}
    ports = list_at(spec, "ports")
    for position, port in enumerate(ports):
        wanted = port.get("nodePort")
        place = f"spec.ports[{position}].nodePort"
        if wanted and wanted not in _NODE_PORTS:
            yield FieldError(place, "FieldValueInvalid", f"Invalid value: {shown(wanted)}: {_RANGE}")
        elif wanted in taken and wanted:
            yield invalid_value(place, wanted, "provided port is already allocated")
    taken |= {p.get("nodePort") for p in ports}
    for port in ports:
        if not port.get("nodePort"):
            port["nodePort"] = random.choice([p for p in _NODE_PORTS if p not in taken])
            taken.add(port["nodePort"])
