"""What no two Services have: cluster addresses and node ports. Source: ``pkg/registry/core/service``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from random import Random

from steersman_testing.apiserver import failures
from steersman_testing.apiserver.failures import FieldError, invalid_value, shown
from steersman_testing.apiserver.kinds import GroupResource, Kind
from steersman_testing.apiserver.storage import Storage, Stored
from steersman_testing.apiserver.values import JsonObject, list_at, map_at

_SERVICES = GroupResource("", "services")
_NODE_PORTS = range(30000, 32768)
_RANGE = "provided port is not in the valid range. The range of valid ports is 30000-32767"
_NO_ADDRESS = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"


@dataclass(frozen=True, slots=True)
class Allocator:
    """Gives Services what they need.

    Attributes:
        addresses: the range of cluster addresses. Its first one belongs to the Service ``kubernetes`` there.
    """

    storage: Storage
    random: Random
    addresses: IPv4Network | IPv6Network

    def allocate(self, kind: Kind, obj: JsonObject, old: Stored | None) -> None:
        """Gives a Service the address and the ports that it needs, in place.

        Args:
            obj: to be stored in place of ``old``, if that is one.

        Raises:
            ApiError: 422, it asks for some that another has; 500, there is no address left.
        """
        if kind.collection != _SERVICES:
            return
        others = [s.object for s in self.storage.list(_SERVICES) if old is None or s.uid != old.uid]
        # Nothing of what is stored already is changed.
        spec: JsonObject = {**map_at(obj, "spec")}
        spec["ports"] = [{**port} for port in list_at(spec, "ports")]
        if not spec["ports"]:
            del spec["ports"]
        obj["spec"] = spec
        before: JsonObject = {} if old is None else map_at(old.object, "spec")
        _give_back(spec, before)
        name = obj["metadata"].get("name", "")
        errors = [] if _has_address(before) else list(self._address(name, spec, others))
        errors += _ports(spec, others, self.random)
        if errors:
            raise failures.invalid(kind.resource, name, errors)

    def _address(self, name: str, spec: JsonObject, others: list[JsonObject]) -> Iterator[FieldError]:
        if not _has_address(spec):
            return
        addresses: Iterator[str] = (map_at(o, "spec").get("clusterIP", "") for o in others)
        taken = {str(self._first), *addresses} - {"None", ""}
        wanted: str = spec.get("clusterIP", "")
        if not wanted:
            wanted = spec["clusterIP"] = self._drawn(name, taken)
        elif wanted != "None":
            yield from self._refused(wanted, taken)
        spec.setdefault("clusterIPs", [wanted])
        spec.setdefault("ipFamilies", [f"IPv{self.addresses.version}"])
        spec.setdefault("ipFamilyPolicy", "SingleStack")

    def _refused(self, wanted: str, taken: set[str]) -> Iterator[FieldError]:
        try:
            address = ip_address(wanted)
        except ValueError:
            yield invalid_value("spec.clusterIPs[0]", wanted, _NO_ADDRESS)
            return
        if address.version != self.addresses.version:
            yield invalid_value(
                "spec.clusterIPs[0]", [wanted], f"IPv{address.version} is not configured on this cluster"
            )
            return
        because = ""
        if not int(self._first) <= int(address) < int(self._first) + self._size:
            because = "the provided network does not match the current range"
        elif wanted in taken:
            because = "provided IP is already allocated"
        if because:
            yield invalid_value("spec.clusterIPs", [wanted], f"failed to allocate IP {wanted}: {because}")

    def _drawn(self, name: str, taken: set[str]) -> str:
        if len(taken) >= self._size:
            text = f'failed to allocate a serviceIP for Service "{name}": range is full'
            raise failures.internal(text)
        while (drawn := str(self._first + self.random.randrange(self._size))) in taken:
            pass
        return drawn

    @property
    def _first(self) -> IPv4Address | IPv6Address:
        return self.addresses.network_address + 1

    @property
    def _size(self) -> int:
        """How many addresses can be given: not that of the network itself, nor that for broadcasts."""
        return self.addresses.num_addresses - (2 if self.addresses.version == 4 else 1)


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
