"""Tests of the pods: realistic differences prevent too much sharing."""

from __future__ import annotations

import json

from benchmarks.pod_documents import NODES, PODS_OF_AN_APPLICATION, pod_document, pod_name

FIRST, SIBLING, OTHER_APPLICATION = (pod_document(n) for n in (0, 1, PODS_OF_AN_APPLICATION))


def test_every_pod_has_a_name_of_its_own() -> None:
    assert len({pod_name(n) for n in range(50_000)}) == 50_000
    assert FIRST["metadata"]["name"] == pod_name(0)


def test_pods_of_one_application_share_metadata() -> None:
    for path in ("labels", "annotations", "ownerReferences"):
        assert FIRST["metadata"][path] == SIBLING["metadata"][path]
    assert FIRST["spec"]["containers"][0]["env"] == SIBLING["spec"]["containers"][0]["env"]


def test_pods_of_one_application_differ_in_own_fields() -> None:
    for field in ("podIP", "podIPs", "startTime", "conditions"):
        assert FIRST["status"][field] != pod_document(60)["status"][field]
    first, sibling = (pod["status"]["containerStatuses"][0] for pod in (FIRST, SIBLING))
    assert first["containerID"] != sibling["containerID"]
    assert first["imageID"] == sibling["imageID"]
    assert FIRST["spec"]["volumes"] != SIBLING["spec"]["volumes"]
    assert FIRST["spec"]["nodeName"] != SIBLING["spec"]["nodeName"]


def test_pods_of_two_applications_differ_in_metadata() -> None:
    for path in ("labels", "ownerReferences"):
        assert FIRST["metadata"][path] != OTHER_APPLICATION["metadata"][path]
    images = [pod["spec"]["containers"][0]["image"] for pod in (FIRST, OTHER_APPLICATION)]
    assert images[0] != images[1]


def test_addresses_are_addresses_and_unique() -> None:
    numbers = [0, 249, 250, 62_499, 49_999, 12_345]
    addresses = [pod_document(n)["status"]["podIP"] for n in numbers]
    assert len(set(addresses)) == len(numbers)
    assert all(0 <= int(part) <= 255 for address in addresses for part in address.split("."))


def test_pod_document_replaces_all_template_values() -> None:
    text = json.dumps(pod_document(NODES + 7))
    for given in ("7d4b9c6f5", "0b7c5f0e", "x7k2p", "10.244.17.93", "9f2c1e6b9f2c1e6b"):
        assert given not in text
