"""Model of Redis nodes in memory, for unit tests and the simulation.

It uses no sockets and only the clock of the event loop. It models membership, slots, keys, gossip, replication and
failover. The contract test compares it with real Redis.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

from redis.crc import key_slot
from steersman_testing import fault_point

from redis_operator.nodes import ALL_SLOTS, Address, Command, LoginRejected, RedisError, Reply, Slots, Unreachable

_GOSSIP_SECONDS = 0.5
_NODE_TIMEOUT = 5.0
_FORGET_BAN_SECONDS = 60.0
_READ_COMMANDS = {("CLUSTER", what) for what in ("NODES", "INFO", "COUNTKEYSINSLOT", "GETKEYSINSLOT")} | {("INFO",)}


@cache
def slot_of(key: str) -> int:
    """Return the slot of a key."""
    return key_slot(key.encode())


NO_SLOTS = Slots()


@dataclass
class KnownNode:
    """State that a node knows about another node."""

    address: Address
    master: str = ""
    slots: Slots = NO_SLOTS
    epoch: int = 0
    unreachable_since: float | None = None


@dataclass
class ModelNode:
    """A node: data on its volume, and address while running."""

    id: str = field(default_factory=lambda: secrets.token_hex(20))
    address: Address | None = None
    password: str = ""
    master: str = ""
    epoch: int = 0
    slots: Slots = NO_SLOTS
    keys: dict[str, str] = field(default_factory=dict[str, str])
    migrating: dict[int, str] = field(default_factory=dict[int, str])
    importing: dict[int, str] = field(default_factory=dict[int, str])
    known_nodes: dict[str, KnownNode] = field(default_factory=dict[str, KnownNode])
    pending_meets: list[Address] = field(default_factory=list[Address])
    banned_until: dict[str, float] = field(default_factory=dict[str, float])
    replicates_from: Address | None = None
    synced: bool = False
    failing_over: bool = False

    def update_master_address(self) -> None:
        """Use the known address of the master, if there is one."""
        self.replicates_from = self.known_nodes[self.master].address if self.master in self.known_nodes else None

    def reset(self, hard: bool) -> None:
        """Implement ``CLUSTER RESET``."""
        if self.master:
            self.keys = {}
        elif self.keys:
            raise RedisError("CLUSTER RESET can't be called with master nodes containing keys")
        self.master, self.slots, self.migrating, self.importing = "", Slots(), {}, {}
        self.known_nodes, self.pending_meets, self.synced = {}, [], False
        if hard:
            self.id, self.epoch = secrets.token_hex(20), 0


class ModelRedis:
    """All nodes of a test, by volume. Implements ``Redis``."""

    def __init__(self) -> None:
        self.volumes: dict[str, ModelNode] = {}
        self.written: set[str] = set()
        self._gossiped = 0.0

    # Machines and volumes

    def start(self, volume: str, address: Address, password: str) -> ModelNode:
        """Start the server with the data of ``volume``."""
        node = self.volumes.setdefault(volume, ModelNode())
        node.address, node.password, node.synced = address, password, False
        node.update_master_address()
        return node

    def stop(self, volume: str) -> None:
        """Stop the server. Its data stay."""
        if node := self.volumes.get(volume):
            node.address = None

    def delete_volume(self, volume: str) -> None:
        self.volumes.pop(volume, None)

    @property
    def running(self) -> list[ModelNode]:
        return [node for node in self.volumes.values() if node.address is not None]

    # Clients

    def readable_keys(self) -> dict[str, str]:
        """Return the keys that a client can read, following redirections."""
        self.gossip()
        found: dict[str, str] = {}
        masters = {node.id: node for node in self.running if not node.master}
        for master in masters.values():
            for key, value in master.keys.items():
                slot = slot_of(key)
                moving = [n for n in masters.values() if n.migrating.get(slot) == master.id and slot in n.slots]
                if slot in master.slots or (moving and key not in moving[0].keys):
                    found[key] = value
        return found

    def covered_slots(self) -> int:
        """Return the number of slots with a running master."""
        return len(Slots.union(node.slots for node in self.running if not node.master))

    def write(self, key: str, value: str) -> None:
        """Write a key like a client that follows redirections."""
        self.gossip()
        slot = slot_of(key)
        owner = max((n for n in self.running if slot in n.slots), key=lambda n: n.epoch)
        if key not in owner.keys and slot in owner.migrating:
            owner = next(n for n in self.running if n.id == owner.migrating[slot])
        owner.keys[key] = value
        self.written.add(key)
        self._replicate()

    # Commands

    async def execute(
        self,
        address: Address,
        password: str,
        *commands: Command,
        timeout: float = 5.0,
    ) -> list[Reply]:
        await asyncio.sleep(0)
        if all(_is_read(command) for command in commands):
            return self._execute(address, password, commands)
        command_name = " ".join(str(word) for word in commands[0][:2])
        async with fault_point(
            f"redis {address}: {command_name} ({len(commands)})", Unreachable(f"{address} is unreachable")
        ):
            return self._execute(address, password, commands)

    def _execute(self, address: Address, password: str, commands: tuple[Command, ...]) -> list[Reply]:
        self.gossip()
        node = next((n for n in self.running if n.address == address), None)
        if node is None:
            raise Unreachable(f"{address} is unreachable: connection refused")
        if node.password != password:
            raise LoginRejected("invalid username-password pair or user is disabled.")
        replies: list[Reply] = []
        first_error: RedisError | None = None
        for command in commands:
            try:
                replies.append(self._execute_one(node, command))
            except RedisError as error:
                first_error = first_error or error
        self._replicate()
        if first_error is not None:
            raise first_error
        return replies

    def _execute_one(self, node: ModelNode, command: Command) -> Reply:
        name, *arguments = command
        if name == "CLUSTER":
            subcommand, *subcommand_arguments = arguments
            handler: Callable[..., Reply] = getattr(self, f"_cluster_{str(subcommand).lower()}")
            return handler(node, *subcommand_arguments)
        handler = getattr(self, f"_{str(name).lower()}")
        return handler(node, *arguments)

    def _info(self, node: ModelNode, section: str) -> str:
        if not node.master:
            return "# Replication\r\nrole:master\r\n"
        up = "up" if node.synced and self._master(node) is not None else "down"
        master_address = node.replicates_from or Address("", 0)
        master_lines = f"master_host:{master_address.ip}\r\nmaster_port:{master_address.port}\r\n"
        return (
            f"# Replication\r\nrole:slave\r\n{master_lines}master_link_status:{up}\r\nmaster_sync_in_progress:0\r\n"
        )

    def _cluster_nodes(self, node: ModelNode) -> str:
        moving = [f"[{slot}->-{other}]" for slot, other in node.migrating.items()]
        moving += [f"[{slot}-<-{other}]" for slot, other in node.importing.items()]
        assert node.address is not None
        lines = [_node_line(node.id, node.address, node.master, node.epoch, node.slots, ["myself"], True, moving)]
        for other, known in node.known_nodes.items():
            flags = [] if known.unreachable_since is None else ["fail"]
            up = known.unreachable_since is None
            lines.append(_node_line(other, known.address, known.master, known.epoch, known.slots, flags, up, []))
        return "\n".join(lines) + "\n"

    def _cluster_info(self, node: ModelNode) -> str:
        """Report the state ok if every slot has a reachable master."""
        reachable_slots = Slots.union(
            known.slots for known in node.known_nodes.values() if known.unreachable_since is None
        )
        state = "ok" if node.slots | reachable_slots == ALL_SLOTS else "fail"
        return f"cluster_enabled:1\r\ncluster_state:{state}\r\n"

    def _cluster_meet(self, node: ModelNode, ip: str, port: int) -> str:
        node.pending_meets.append(Address(ip, port))
        return "OK"

    def _cluster_forget(self, node: ModelNode, other: str) -> str:
        if other not in node.known_nodes:
            raise RedisError(f"Unknown node {other}")
        if other == node.master:
            raise RedisError("Can't forget my master!")
        del node.known_nodes[other]
        node.banned_until[other] = _now() + _FORGET_BAN_SECONDS
        return "OK"

    def _cluster_addslotsrange(self, node: ModelNode, *ends: int) -> str:
        slots = Slots.union(Slots.from_range(a, b) for a, b in zip(ends[::2], ends[1::2], strict=True))
        if busy := slots & (node.slots | Slots.union(known.slots for known in node.known_nodes.values())):
            raise RedisError(f"Slot {next(iter(busy))} is already busy")
        node.slots |= slots
        return "OK"

    def _cluster_replicate(self, node: ModelNode, master: str) -> str:
        if master not in node.known_nodes:
            raise RedisError(f"Unknown node {master}")
        if node.known_nodes[master].master:
            raise RedisError("I can only replicate a master, not a replica.")
        if not node.master and (node.slots or node.keys):
            raise RedisError("To set a master the node must be empty and without assigned slots.")
        if node.master != master:
            node.master, node.synced, node.migrating, node.importing = master, False, {}, {}
        node.update_master_address()
        return "OK"

    def _cluster_reset(self, node: ModelNode, mode: str) -> str:
        node.reset(mode == "HARD")
        return "OK"

    def _cluster_failover(self, node: ModelNode, mode: str = "") -> str:
        if not node.master:
            raise RedisError("You should send CLUSTER FAILOVER to a replica")
        if mode == "TAKEOVER":
            self._promote(node)
        elif self._node(node.master) is None:
            raise RedisError("Master is down or failed, please use CLUSTER FAILOVER FORCE")
        else:
            node.failing_over = True
        return "OK"

    def _cluster_setslot(self, node: ModelNode, slot: int, action: str, other: str = "") -> str:
        if node.master:
            raise RedisError("You can use SETSLOT only with masters.")
        if action != "STABLE" and other != node.id and other not in node.known_nodes:
            raise RedisError(f"Unknown node {other}")
        if action == "MIGRATING":
            if slot not in node.slots:
                raise RedisError(f"I'm not the owner of hash slot {slot}")
            node.migrating[slot] = other
        elif action == "IMPORTING":
            if slot in node.slots:
                raise RedisError(f"I'm already the owner of hash slot {slot}")
            node.importing[slot] = other
        elif action == "STABLE":
            node.migrating.pop(slot, None)
            node.importing.pop(slot, None)
        else:
            self._assign_slot(node, slot, other)
        return "OK"

    def _assign_slot(self, node: ModelNode, slot: int, other: str) -> None:
        if slot in node.slots and other != node.id and self._keys_in_slot(node, slot):
            raise RedisError(f"Can't assign hashslot {slot} to a different node while I still hold keys")
        node.migrating.pop(slot, None)
        if other != node.id:
            node.slots -= Slots.of([slot])
            node.known_nodes[other].slots |= Slots.of([slot])
            return
        node.slots |= Slots.of([slot])
        if node.importing.pop(slot, None):
            newest = max([known.epoch for known in node.known_nodes.values()], default=0)
            if node.epoch <= newest:
                node.epoch = newest + 1

    def _cluster_countkeysinslot(self, node: ModelNode, slot: int) -> int:
        return len(self._keys_in_slot(node, slot))

    def _cluster_getkeysinslot(self, node: ModelNode, slot: int, count: int) -> list[str]:
        return self._keys_in_slot(node, slot)[:count]

    def _keys_in_slot(self, node: ModelNode, slot: int) -> list[str]:
        return [key for key in node.keys if slot_of(key) == slot]

    def _migrate(self, node: ModelNode, ip: str, port: int, *options: str | int) -> str:
        target = next((n for n in self.running if n.address == Address(ip, port)), None)
        if target is None:
            raise RedisError("IOERR error or timeout connecting to the client")
        where = options.index("KEYS")
        for key in options[where + 1 :]:
            if str(key) in node.keys:
                if "REPLACE" not in options and str(key) in target.keys:
                    raise RedisError("Target instance replied with error: BUSYKEY Target key name already exists.")
                target.keys[str(key)] = node.keys.pop(str(key))
        return "OK"

    def _set(self, node: ModelNode, key: str, value: str) -> str:
        self._check_redirection(node, key)
        node.keys[key] = value
        return "OK"

    def _get(self, node: ModelNode, key: str) -> str | None:
        self._check_redirection(node, key)
        return node.keys.get(key)

    def _check_redirection(self, node: ModelNode, key: str) -> None:
        """Raise RedisError if Redis would redirect the client."""
        slot = slot_of(key)
        if slot in node.migrating and key not in node.keys:
            raise RedisError(f"ASK {slot} {node.known_nodes[node.migrating[slot]].address}")
        if slot in node.slots:
            return
        owner = next((known for known in node.known_nodes.values() if slot in known.slots), None)
        raise RedisError(f"MOVED {slot} {owner.address}" if owner else "CLUSTERDOWN Hash slot not served")

    # Background activity

    def _master(self, node: ModelNode) -> ModelNode | None:
        """Return the master at the address that the replica knows."""
        master = self._node(node.master) if node.master else None
        return master if master is not None and master.address == node.replicates_from else None

    def _node(self, node: str) -> ModelNode | None:
        return next((n for n in self.running if n.id == node), None)

    def gossip(self) -> None:
        """Exchange gossip for the time since the last call."""
        rounds = min(6, int((_now() - self._gossiped) / _GOSSIP_SECONDS))
        if rounds:
            self._gossiped = _now()
        for _ in range(rounds):
            self._gossip_round()

    def _gossip_round(self) -> None:
        for node in self.running:
            self._handshakes(node)
        for node in self.running:
            for other in list(node.known_nodes):
                self._exchange_gossip(node, other)
        for node in self.running:
            if node.failing_over and (master := self._node(node.master)):
                node.keys = dict(master.keys)
                self._promote(node)
            node.failing_over = False
            self._elect(node)
            if master := self._master(node):
                node.synced, node.keys = True, dict(master.keys)

    def _handshakes(self, node: ModelNode) -> None:
        for address in node.pending_meets:
            other = next((n for n in self.running if n.address == address), None)
            if other is not None and other is not node and node.address is not None:
                for a, b in ((node, other), (other, node)):
                    assert b.address is not None
                    a.known_nodes.setdefault(b.id, KnownNode(b.address)).address = b.address
                    self._follow_moved_master(a, b.id)
        node.pending_meets = []

    def _follow_moved_master(self, node: ModelNode, other: str) -> None:
        """Follow the master after its own message. Gossip has no such effect."""
        if node.master == other:
            node.update_master_address()

    def _exchange_gossip(self, node: ModelNode, other: str) -> None:
        """Update a node with the state of a reachable peer."""
        known = node.known_nodes[other]
        peer = self._node(other)
        if peer is None or peer.address != known.address:
            # An unreachable peer may know the current address of this node and report its own.
            if peer is not None and node.id in peer.known_nodes and peer.known_nodes[node.id].address == node.address:
                assert peer.address is not None
                known.address = peer.address
                self._follow_moved_master(node, other)
            elif known.unreachable_since is None:
                known.unreachable_since = _now()
            return
        if node.id not in peer.known_nodes:
            known.unreachable_since = known.unreachable_since or _now()
            return
        known.unreachable_since, known.master, known.epoch = None, peer.master, peer.epoch
        self._resolve_slot_conflict(node, peer)
        known.slots = peer.slots
        for third, entry in peer.known_nodes.items():
            if third == node.id or entry.unreachable_since is not None or node.banned_until.get(third, 0.0) >= _now():
                continue
            local_entry = node.known_nodes.setdefault(third, KnownNode(entry.address))
            if local_entry.unreachable_since is not None:
                local_entry.address = entry.address

    def _resolve_slot_conflict(self, node: ModelNode, peer: ModelNode) -> None:
        """Assign a contested slot to the master with the newer epoch."""
        if peer.master or node.master:
            return
        if peer.epoch == node.epoch and node.id < peer.id:
            node.epoch += 1
            return
        contested = node.slots & peer.slots
        if not contested or peer.epoch < node.epoch:
            return
        node.slots -= contested
        node.migrating = {slot: other for slot, other in node.migrating.items() if slot not in contested}
        if not node.slots and contested == peer.slots:
            node.master, node.synced, node.importing = peer.id, False, {}
            node.update_master_address()

    def _elect(self, node: ModelNode) -> None:
        known = node.known_nodes.get(node.master) if node.master else None
        if known is None or known.unreachable_since is None or not known.slots:
            return
        masters = [k for k in node.known_nodes.values() if k.slots]
        alive = [k for k in masters if k.unreachable_since is None]
        if _now() - known.unreachable_since > _NODE_TIMEOUT and len(alive) > len(masters) // 2:
            self._promote(node)

    def _promote(self, node: ModelNode) -> None:
        old_master = self._node(node.master)
        slots = old_master.slots if old_master is not None else node.known_nodes[node.master].slots
        newest = max(known.epoch for known in node.known_nodes.values())
        for other in self.running:
            # The model propagates a failover immediately.
            if node.master in other.known_nodes:
                other.known_nodes[node.master].slots = Slots()
        if old_master is not None:
            old_master.slots, old_master.master, old_master.synced = Slots(), node.id, True
            old_master.migrating, old_master.importing, old_master.replicates_from = {}, {}, node.address
        node.slots, node.master, node.epoch, node.failing_over = slots, "", max(newest, node.epoch) + 1, False

    def _replicate(self) -> None:
        for node in self.running:
            master = self._master(node)
            if master is not None and node.synced:
                node.keys = dict(master.keys)


def _is_read(command: Command) -> bool:
    return command[:2] in _READ_COMMANDS or command[:1] in _READ_COMMANDS


def _now() -> float:
    return asyncio.get_running_loop().time()


def _node_line(
    node: str,
    address: Address,
    master: str,
    epoch: int,
    slots: Slots,
    flags: list[str],
    connected: bool,
    moving: list[str],
) -> str:
    role = "slave" if master else "master"
    link = "connected" if connected else "disconnected"
    fields = [
        node,
        f"{address}@{address.port + 10000}",
        ",".join([role, *flags]),
        master or "-",
        "0",
        "0",
        str(epoch),
        link,
    ]
    ranges = (str(a) if a == b else f"{a}-{b}" for a, b in slots.ranges())
    return " ".join([*fields, *ranges, *moving])
