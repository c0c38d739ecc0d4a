"""Cases that the in-memory API server and the real one must answer alike.

Each is an async function of an ``Api`` with a namespace of its own. The unit tests run them in memory, the
integration tests on a real kube-apiserver, unchanged.
"""

from apiserver_cases import apply, crud, custom, deletion, lists, metadata, patches, rules, subresources, watches
from apiserver_cases.api import MERE_CRDS, Api, Case

CASES: dict[str, Case] = {
    f"{module.__name__.rpartition('.')[2]}-{name.removeprefix('case_')}": function
    for module in (crud, lists, patches, apply, custom, rules, deletion, watches, metadata, subresources)
    for name, function in vars(module).items()
    if name.startswith("case_")
}

CRDS = [*MERE_CRDS, rules.CRD, subresources.CRD]

__all__ = ["CASES", "CRDS", "Api", "Case"]
