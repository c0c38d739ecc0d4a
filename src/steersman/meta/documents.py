"""YAML as Kubernetes reads it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# A lone = and dates are texts to Go; YAML 1.1 gives them types of their own.
_OTHER = ("tag:yaml.org,2002:value", "tag:yaml.org,2002:timestamp")


class _KubernetesLoader(_Loader):
    yaml_implicit_resolvers = {  # noqa: RUF012
        first: [(tag, pattern) for tag, pattern in found if tag not in _OTHER]
        for first, found in _Loader.yaml_implicit_resolvers.items()
    }


def documents(text: str | bytes) -> Iterator[Any]:
    """The documents in ``text``, YAML or JSON.

    Raises:
        yaml.YAMLError: it is neither.
    """
    return yaml.load_all(text, Loader=_KubernetesLoader)
