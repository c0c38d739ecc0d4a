"""Writes an operator with a reconciler for each resource."""

from __future__ import annotations

import copy
import pkgutil
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import PurePosixPath
from typing import Any

from steersman.meta import Object
from steersman_cli.codegen import generate_package
from steersman_cli.codegen.definitions import group_into_modules
from steersman_cli.codegen.formatting import format_modules
from steersman_cli.codegen.names import attribute_name
from steersman_cli.kopf.conversion import RECONCILE, required_permissions
from steersman_cli.kopf.handlers import KopfHandler, ResourceName

_LINE_LENGTH = 110
_PYTHON_TYPES = {"string": "str", "boolean": "bool", "integer": "int", "number": "float", "": "object"}
# Every ``Status`` has them.
_INHERITED_STATUS_FIELDS = ("conditions", "observedGeneration")


@dataclass(frozen=True)
class _Kind:
    """Class of a resource: imported from ``module``, or declared by ``declaration``."""

    name: str
    module: str = ""
    declaration: str = ""


def render_operator(
    handlers: Sequence[KopfHandler], definitions: Sequence[Mapping[str, Any]], name: str
) -> dict[PurePosixPath, str]:
    """Return the files of a new operator by their relative path.

    ``main.py`` has a reconciler for each resource, with the source of the handlers as comments. ``kinds/`` has types
    of the CRDs.

    Args:
        definitions: manifests of the CRDs of the operator.
        name: name of the operator.

    Raises:
        ConfigurationError: a CRD cannot be converted.
    """
    resources: dict[ResourceName, list[KopfHandler]] = {}
    for handler in handlers:
        if handler.resource is not None and handler.activity in (*RECONCILE, "delete"):
            resources.setdefault(handler.resource, []).append(handler)
    used = [
        _with_status_fields(d, [h for r, found in resources.items() if _matches(d, r) for h in found])
        for d in definitions
        if any(_matches(d, resource) for resource in resources)
    ]
    files = (
        {PurePosixPath("kinds") / p: t for p, t in generate_package(map(dict, used)).files.items()} if used else {}
    )
    kinds = {resource: _kind_of(resource, used, found) for resource, found in resources.items()}
    by_class: dict[str, list[KopfHandler]] = {}
    for resource, found in resources.items():
        by_class.setdefault(kinds[resource].name, []).extend(found)
    others = [h for h in handlers if h.resource is None or h.activity not in (*RECONCILE, "delete")]
    main = PurePosixPath("main.py")
    text = _render_main(name, list(kinds.values()), by_class, others)
    return {**files, **format_modules({main: text}, _LINE_LENGTH)}


def _matches(definition: Mapping[str, Any], resource: ResourceName) -> bool:
    spec = definition["spec"]
    names = spec["names"]
    known = (names["plural"], names["kind"], names.get("singular", ""), *names.get("shortNames", ()))
    return resource.selects(spec["group"], known)


def _with_status_fields(definition: Mapping[str, Any], handlers: Sequence[KopfHandler]) -> Mapping[str, Any]:
    """Add the status fields that handlers name to versions without any."""
    properties = {
        name: {"type": type_} if type_ else {"x-kubernetes-preserve-unknown-fields": True}
        for name, type_ in _status_fields(handlers).items()
    }
    if not properties:
        return definition
    changed = copy.deepcopy(dict(definition))
    for version in changed["spec"]["versions"]:
        schema = version.get("schema", {}).get("openAPIV3Schema", {})
        if not schema.get("properties", {}).get("status", {}).get("properties"):
            schema.setdefault("properties", {})["status"] = {"type": "object", "properties": properties}
            version.setdefault("subresources", {}).setdefault("status", {})
    return changed


def _status_fields(handlers: Iterable[KopfHandler]) -> dict[str, str]:
    found: dict[str, str] = {}
    for handler in handlers:
        for name, type_ in handler.status_fields.items():
            if name not in _INHERITED_STATUS_FIELDS:
                found[name] = found.get(name) or type_
    return found


def _kind_of(
    resource: ResourceName, definitions: Sequence[Mapping[str, Any]], handlers: Sequence[KopfHandler]
) -> _Kind:
    for definition in definitions:
        if _matches(definition, resource):
            kind = definition["spec"]["names"]["kind"]
            modules = {m.version: m.name for m in group_into_modules([dict(definition)])}
            return _Kind(kind, module=f"kinds.{modules.get(resource.version) or list(modules.values())[-1]}")
    if builtin := _builtin_kind(resource):
        return builtin
    name = re.sub(r"\W", "", resource.name[:1].upper() + resource.name[1:])
    name = name.removesuffix("s") if resource.name.islower() else name
    fields = "".join(
        f"\n            {attribute_name(field)}: {_PYTHON_TYPES[type_]} | None = None"
        for field, type_ in _status_fields(handlers).items()
    )
    declaration = f'''
        class {name}Spec(Spec):
            """Declare the fields of the spec here. The CRD follows from them."""


        class {name}Status(Status):
            """Declare the fields of the status here."""
{fields}


        @resource(group="{resource.group or "example.com"}", version="{resource.version or "v1"}")
        class {name}(Resource[{name}Spec, {name}Status]):
            """Describe the kind here."""
        '''
    return _Kind(name, declaration=textwrap.dedent(declaration))


def _builtin_kind(resource: ResourceName) -> _Kind | None:
    kind = builtin_class(resource)
    return None if kind is None else _Kind(kind.api_resource.kind, module=kind.__module__)


def builtin_class(resource: ResourceName) -> type[Object] | None:
    """Return the framework's class of a built-in kind, or None."""
    import steersman.api

    for module in pkgutil.iter_modules(steersman.api.__path__):
        if module.ispkg:
            continue
        name = f"steersman.api.{module.name}"
        for candidate in vars(import_module(name)).values():
            found = getattr(candidate, "api_resource", None)
            if found is None or getattr(candidate, "__module__", "") != name:
                continue
            if resource.selects(found.group, (found.plural, found.kind, found.kind.lower())):
                return candidate
    return None


def _render_main(
    name: str, kinds: Iterable[_Kind], by_class: Mapping[str, list[KopfHandler]], others: Sequence[KopfHandler]
) -> str:
    unique = {kind.name: kind for kind in kinds}
    declared = any(kind.declaration for kind in unique.values())
    names = ["Manager", "Reconciler", "Result", "run"]
    names += ["Resource", "Spec", "Status", "resource"] if declared else []
    lines = [
        f'"""Operator {name}, converted from Kopf. Comments have the source of the handlers."""',
        "",
        "from __future__ import annotations",
        "",
        f"from steersman import {', '.join(sorted(names, key=str.lower))}",
        *sorted(f"from {kind.module} import {kind.name}" for kind in unique.values() if "steersman" in kind.module),
        "",
        *sorted(f"from {kind.module} import {kind.name}" for kind in unique.values() if "kinds." in kind.module),
        "",
        *(kind.declaration for kind in unique.values() if kind.declaration),
    ]
    for class_name, handlers in by_class.items():
        lines += _render_reconciler(class_name, handlers)
    lines += _render_setup(by_class)
    lines += _comments(others, "")
    lines += ["", "", 'if __name__ == "__main__":', f'    run(setup, name="{name}")', ""]
    return "\n".join(lines)


def _render_reconciler(class_name: str, handlers: Sequence[KopfHandler]) -> Iterator[str]:
    variable = class_name[:1].lower() + class_name[1:]
    yield from ("", "", f"class {class_name}Reconciler(Reconciler[{class_name}]):")
    yield f'    """Reconciles objects of the kind {class_name}."""'
    yield from ("", f"    async def reconcile(self, {variable}: {class_name}) -> Result | None:")
    yield "        # Compare the actual with the desired state, and correct the difference."
    intervals = [h.options["interval"] for h in handlers if h.activity == "timer" and "interval" in h.options]
    yield from _comments([h for h in handlers if h.activity in RECONCILE], " " * 8)
    numbers = [float(interval) for interval in intervals if re.fullmatch(r"[0-9]+(\.[0-9]+)?", interval)]
    yield f"        return Result(requeue_after={min(numbers):g})" if numbers else "        return None"
    deletes = [h for h in handlers if h.activity == "delete"]
    if deletes:
        yield from ("", f"    async def cleanup(self, {variable}: {class_name}) -> None:")
        yield '        """Remove what is outside of the cluster, before the object goes."""'
        yield from _comments(deletes, " " * 8)


def _render_setup(by_class: Mapping[str, list[KopfHandler]]) -> Iterator[str]:
    yield from ("", "", "def setup(manager: Manager) -> None:")
    yield '    """Register the controllers."""'
    for class_name, handlers in by_class.items():
        for kind, verbs in required_permissions(handlers).items():
            yield f"    # The handlers call: {', '.join(verbs)} {kind}. Declare .owns({kind}) or .needs({kind}, ...)."
        yield f"    manager.controller({class_name}).complete({class_name}Reconciler)"
    if not by_class:
        yield "    del manager"


def _comments(handlers: Sequence[KopfHandler], indent: str) -> Iterator[str]:
    """Yield the source of each function once, below all its decorators."""
    functions: dict[tuple[str, int], list[KopfHandler]] = {}
    for handler in handlers:
        functions.setdefault((handler.file, handler.line), []).append(handler)
    for (file, line), decorated in functions.items():
        if not indent:
            yield ""
        for handler in decorated:
            options = "".join(f", {name}={text}" for name, text in handler.options.items())
            title = f"{handler.activity}{options}: {handler.function}() in {file}:{line}"
            first, following = f"{indent}# ", f"{indent}#   "
            yield from textwrap.wrap(title, _LINE_LENGTH, initial_indent=first, subsequent_indent=following)
        for code in textwrap.dedent(decorated[0].body).splitlines():
            yield f"{indent}#     {code}".rstrip()
