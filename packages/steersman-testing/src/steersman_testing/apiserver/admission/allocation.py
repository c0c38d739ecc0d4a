"""Allocation of cluster IPs and node ports for Services.

Source: ``pkg/registry/core/service``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from random import Random

from steersman_testing.apiserver import failures
from steersman_testing.apiserver.failures import InvalidFieldError, format_value, invalid_value
from steersman_testing.apiserver.kinds import GroupResource, ServedKind
from steersman_testing.apiserver.storage import Storage, StoredObject
from steersman_testing.apiserver.values import JsonObject, get_array, get_object

_SERVICES = GroupResource("", "services")
_NODE_PORTS = range(30000, 32768)
_PORT_RANGE_ERROR = "provided port is not in the valid range. The range of valid ports is 30000-32767"
_INVALID_ADDRESS = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"


@dataclass(frozen=True, slots=True)
class ServiceAllocator:
    """Allocates cluster IPs and node ports.

    Attributes:
        service_network: the cluster IP range. Its first address belongs to the Service ``kubernetes``.
    """

    storage: Storage
    random: Random
    service_network: IPv4Network | IPv6Network

    def allocate(self, kind: ServedKind, obj: JsonObject, old: StoredObject | None) -> None:
        """Allocate cluster IP and node ports of a Service, in place.

        Other kinds are ignored.

        Args:
            obj: the object to store.
            old: the object before an update.

        Raises:
            ApiError: 422, a requested address or port is allocated; 500, the range is full.
        """
        if kind.collection != _SERVICES:
            return
        others = [s.object for s in self.storage.list(_SERVICES) if old is None or s.uid != old.uid]
        # Copy before changes, because parts may be shared with stored objects.
        spec: JsonObject = {**get_object(obj, "spec")}
        spec["ports"] = [{**port} for port in get_array(spec, "ports")]
        if not spec["ports"]:
            del spec["ports"]
        obj["spec"] = spec
        before: JsonObject = {} if old is None else get_object(old.object, "spec")
        _release_unused_fields(spec, before)
        name = obj["metadata"].get("name", "")
        errors = [] if _has_address(before) else list(self._allocate_address(name, spec, others))
        errors += _allocate_node_ports(spec, others, self.random)
        if errors:
            raise failures.invalid(kind.resource, name, errors)

    def _allocate_address(self, name: str, spec: JsonObject, others: list[JsonObject]) -> Iterator[InvalidFieldError]:
        if not _has_address(spec):
            return
        addresses: Iterator[str] = (get_object(o, "spec").get("clusterIP", "") for o in others)
        taken = {str(self._first_address), *addresses} - {"None", ""}
        address: str = spec.get("clusterIP", "")
        if not address:
            address = spec["clusterIP"] = self._random_address(name, taken)
        elif address != "None":
            yield from self._address_errors(address, taken)
        spec.setdefault("clusterIPs", [address])
        spec.setdefault("ipFamilies", [f"IPv{self.service_network.version}"])
        spec.setdefault("ipFamilyPolicy", "SingleStack")

    def _address_errors(self, requested: str, taken: set[str]) -> Iterator[InvalidFieldError]:
        try:
            address = ip_address(requested)
        except ValueError:
            yield invalid_value("spec.clusterIPs[0]", requested, _INVALID_ADDRESS)
            return
        if address.version != self.service_network.version:
            yield invalid_value(
                "spec.clusterIPs[0]", [requested], f"IPv{address.version} is not configured on this cluster"
            )
            return
        reason = ""
        if not int(self._first_address) <= int(address) < int(self._first_address) + self._address_count:
            reason = "the provided network does not match the current range"
        elif requested in taken:
            reason = "provided IP is already allocated"
        if reason:
            yield invalid_value("spec.clusterIPs", [requested], f"failed to allocate IP {requested}: {reason}")

    def _random_address(self, name: str, taken: set[str]) -> str:
        if len(taken) >= self._address_count:
            text = f'failed to allocate a serviceIP for Service "{name}": range is full'
            raise failures.internal(text)
        while (candidate := str(self._first_address + self.random.randrange(self._address_count))) in taken:
            pass
        return candidate

    @property
    def _first_address(self) -> IPv4Address | IPv6Address:
        return self.service_network.network_address + 1

    @property
    def _address_count(self) -> int:
        """Number of addresses without those of the network and broadcast."""
        return self.service_network.num_addresses - (2 if self.service_network.version == 4 else 1)


def _has_address(spec: JsonObject) -> bool:
    return spec.get("type", "ExternalName") != "ExternalName"


def _has_node_ports(spec: JsonObject) -> bool:
    return spec.get("type") in ("NodePort", "LoadBalancer")


def _release_unused_fields(spec: JsonObject, before: JsonObject) -> None:
    """Remove unchanged fields that the new Service type does not have."""
    if _has_address(before) and not _has_address(spec) and spec.get("clusterIP") == before.get("clusterIP"):
        for field in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
            spec.pop(field, None)
    types = {
        "internalTrafficPolicy": ("ClusterIP", "NodePort", "LoadBalancer"),
        "externalTrafficPolicy": ("NodePort", "LoadBalancer"),
        "allocateLoadBalancerNodePorts": ("LoadBalancer",),
    }
    for field, types_with_field in types.items():
        no_longer_applies = before.get("type") in types_with_field and spec.get("type") not in types_with_field
        if no_longer_applies and spec.get(field) == before.get(field):
            spec.pop(field, None)
    previous_ports = [p.get("nodePort") for p in get_array(before, "ports")]
    ports = get_array(spec, "ports")
    if _has_node_ports(before) and not _has_node_ports(spec) and [p.get("nodePort") for p in ports] == previous_ports:
        for port in ports:
            port.pop("nodePort", None)


def _allocate_node_ports(spec: JsonObject, others: list[JsonObject], random: Random) -> Iterator[InvalidFieldError]:
    if not _has_node_ports(spec):
        return
    taken = {p.get("nodePort") for o in others for p in get_array(get_object(o, "spec"), "ports")}
    ports = get_array(spec, "ports")
    for position, port in enumerate(ports):
        node_port = port.get("nodePort")
        path = f"spec.ports[{position}].nodePort"
        if node_port and node_port not in _NODE_PORTS:
            yield InvalidFieldError(
                path, "FieldValueInvalid", f"Invalid value: {format_value(node_port)}: {_PORT_RANGE_ERROR}"
            )
        elif node_port in taken and node_port:
            yield invalid_value(path, node_port, "provided port is already allocated")
    taken |= {p.get("nodePort") for p in ports}
    for port in ports:
        if not port.get("nodePort"):
            port["nodePort"] = random.choice([p for p in _NODE_PORTS if p not in taken])
            taken.add(port["nodePort"])
