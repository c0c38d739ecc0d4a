"""Realistic pods: similar within an application, never identical.

100 pods belong to one application and share names, labels, image and environment. Each node runs 50 pods. Name,
addresses, container ID, token volume and timestamps are unique. The API server sets UID and resourceVersion.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec

PODS_OF_AN_APPLICATION = 100
NODES = 1000
_TEMPLATE = (Path(__file__).parent / "pod.json").read_text()


def pod_name(number: int) -> str:
    """Return the name of the pod with this number."""
    application = _application(number)
    return f"{application}-{_hexadecimal(application, 9)}-{number:05}"


def pod_document(number: int) -> dict[str, Any]:
    """Return a complete pod with the status that a kubelet would write."""
    application, name = _application(number), pod_name(number)
    node = number % NODES
    digits = _hexadecimal(name, 64)
    seconds = number * 7 % 86_400
    own = {
        "shop-frontend": application,
        "shop/frontend:": f"shop/{application}:",
        "7d4b9c6f5": _hexadecimal(application, 9),
        "0b7c5f0e-6f0d-4a0c-8a44-7a3a0f9d5a10": _uid(application),
        "9f2c1e6b" * 8: digits,
        "sha256:" + digits: "sha256:" + _hexadecimal(f"{application} image", 64),
        "node-17": f"node-{node}",
        "10.0.3.17": f"10.0.{node // 250}.{node % 250}",
        "10.244.17.93": f"10.{128 + number // 62_500}.{number // 250 % 250}.{number % 250}",
        "x7k2p": digits[:5],
        "2026-03-01T10:15": f"2026-03-01T{seconds // 3600:02}:{seconds // 60 % 60:02}",
    }
    text = _TEMPLATE
    for given, replacement in own.items():
        text = text.replace(given, replacement)
    document = msgspec.json.decode(text)
    document["metadata"]["name"] = name
    return document


def _application(number: int) -> str:
    return f"shop-{_hexadecimal(str(number // PODS_OF_AN_APPLICATION), 6)}"


def _hexadecimal(text: str, digits: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:digits]


def _uid(text: str) -> str:
    digits = _hexadecimal(f"uid {text}", 32)
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
