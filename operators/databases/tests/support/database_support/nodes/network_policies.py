"""NetworkPolicies of a namespace that are enforced on the devcluster, whose pod network knows of none.

Of policies it takes what the operator makes: who may come in, by port and by labels of pods and namespaces.

Source: kubernetes.io/docs/concepts/services-networking/network-policies.
"""

from __future__ import annotations

import subprocess
import threading
from collections import defaultdict
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from devcluster import layout
from devcluster.machine import Machine
from devcluster.state import State
from devcluster.target import Target

_CHAIN = "POLICIES"
_SYNC_INTERVAL_SECONDS = 0.5  # seconds until a pod that has come is known

Objects = Sequence[Mapping[str, Any]]


@contextmanager
def enforced_policies(target: Target, namespace: str) -> Generator[None]:
    """What policies do not let in is dropped during the block, of the devcluster alone."""
    state = State.load()
    assert target.is_devcluster and state is not None
    nodes = {node.name: state.machines[node.name] for node in state.nodes}
    ended = threading.Event()
    failed: list[Exception] = []
    known: dict[str, str] = {}

    def follow() -> None:
        while not ended.wait(_SYNC_INTERVAL_SECONDS):
            try:
                _enforce(nodes, rules(*_declared(target, namespace)), known)
            except Exception as error:
                failed.append(error)
                return

    following = threading.Thread(target=follow)
    try:
        _enforce(nodes, rules(*_declared(target, namespace)), known)
        for machine in nodes.values():
            assert _iptables(machine, "--insert", "FORWARD", "--jump", _CHAIN)
        following.start()
        yield
    except BaseException as error:
        for each in failed:
            error.add_note(f"policies were followed no longer: {each!r}")
        raise
    finally:
        ended.set()
        if following.ident is not None:
            following.join()
        for machine in nodes.values():
            _end(machine)
    assert not failed, failed


def _end(machine: Machine) -> None:
    """Also what a run has left that was killed."""
    while _iptables(machine, "--delete", "FORWARD", "--jump", _CHAIN):
        pass
    _iptables(machine, "--flush", _CHAIN)
    _iptables(machine, "--delete-chain", _CHAIN)


def rules(policies: Objects, pods: Objects, namespaces: Objects) -> Mapping[str, Sequence[str]]:
    """For each node the rules of a chain through which all packets go that are forwarded to its pods."""
    found: dict[str, list[str]] = defaultdict(list)
    labels = {each["metadata"]["name"]: each["metadata"].get("labels", {}) for each in namespaces}
    here = [
        pod
        for pod in pods
        if pod["status"].get("podIP")
        and pod["status"]["phase"] in ("Pending", "Running")
        and not pod["spec"].get("hostNetwork")
    ]
    for pod in here:
        chosen = [
            policy["spec"]
            for policy in policies
            if policy["metadata"]["namespace"] == pod["metadata"]["namespace"]
            and _selects(policy["spec"]["podSelector"], pod["metadata"].get("labels", {}))
        ]
        to = f"--append {_CHAIN} --destination {pod['status']['podIP']}"
        for spec in chosen:
            for rule in spec.get("ingress", ()):
                home = pod["metadata"]["namespace"]
                found[pod["spec"]["nodeName"]] += [
                    f"{to}{source}{port} --jump RETURN"
                    for source in _sources(rule, here, labels, home)
                    for port in _ports(rule)
                ]
        if chosen:
            found[pod["spec"]["nodeName"]].append(f"{to} --jump DROP")
    return found


def _sources(rule: Mapping[str, Any], pods: Objects, namespaces: Mapping[str, Any], home: str) -> Iterator[str]:
    if "from" not in rule:
        yield ""
    for peer in rule.get("from", ()):
        assert peer.keys() <= {"podSelector", "namespaceSelector"}, f"a peer of another kind: {peer}"
        chosen = peer.get("namespaceSelector", {"matchLabels": {"kubernetes.io/metadata.name": home}})
        for pod in (pod for pod in pods if _selects(chosen, namespaces.get(pod["metadata"]["namespace"], {}))):
            if _selects(peer.get("podSelector", {}), pod["metadata"].get("labels", {})):
                yield f" --source {pod['status']['podIP']}"


def _ports(rule: Mapping[str, Any]) -> Sequence[str]:
    named = [f" --protocol {each['protocol'].lower()} --dport {each['port']}" for each in rule.get("ports", ())]
    return named or [""]


def _selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    assert selector.keys() <= {"matchLabels"}, f"a selector of another kind: {selector}"
    return selector.get("matchLabels", {}).items() <= labels.items()


def _declared(target: Target, namespace: str) -> tuple[Objects, Objects, Objects]:
    asked = (("networkpolicies", f"--namespace={namespace}"), ("pods", "--all-namespaces"), ("namespaces",))
    policies, pods, namespaces = ((target.get(*words) or {"items": []})["items"] for words in asked)
    return policies, pods, namespaces


def _enforce(nodes: Mapping[str, Machine], wanted: Mapping[str, Sequence[str]], known: dict[str, str]) -> None:
    """All rules of a node at once; answers to what was let out come back in."""
    for name, machine in nodes.items():
        answers = f"--append {_CHAIN} --match conntrack --ctstate ESTABLISHED,RELATED --jump RETURN"
        text = "\n".join(("*filter", f":{_CHAIN} - [0:0]", answers, *wanted.get(name, ()), "COMMIT", ""))
        if known.get(name) != text:
            restore = machine.in_network([f"{layout.IPTABLES}-restore", "--noflush", "--wait"])
            subprocess.run(restore, input=text, text=True, check=True, capture_output=True)
            known[name] = text


def _iptables(machine: Machine, *arguments: str) -> bool:
    """Whether there was something to do."""
    command = machine.in_network([layout.IPTABLES, "--wait", *arguments])
    return subprocess.run(command, check=False, capture_output=True).returncode == 0
