"""``steersman create``: kinds, controllers and webhooks of a project."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from importlib import import_module
from keyword import iskeyword
from typing import Annotated, Any

import typer
import yaml

from steersman.cli.ending import GoFlags, needed, told_plainly
from steersman.cli.markers import entered
from steersman.cli.project import FILE, Project, as_text
from steersman.cli.templating import rendered, write
from steersman.errors import ConfigurationError

group = typer.Typer(no_args_is_help=True, help="Add kinds, controllers and webhooks to a project.")
"""The commands below ``steersman create``."""

_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_VERSION = re.compile(r"v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?")
_KIND = re.compile(r"[A-Z][A-Za-z0-9]{0,62}")
_CRD_VERSIONS = ("v1", "v1beta1")

GroupOption = Annotated[str | None, typer.Option("--group", help="API group, without the domain.")]
VersionOption = Annotated[str | None, typer.Option("--version", help="API version, such as v1alpha1.")]
KindOption = Annotated[str | None, typer.Option("--kind", help="The kind, such as DatabaseUser.")]
Plural = Annotated[str, typer.Option(help="Name in URLs; the English plural of the kind unless given.")]
Force = Annotated[bool, typer.Option("--force", help="Write over files that are there.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Tell what would be written.")]


@group.callback()
def _create() -> None:  # pyright: ignore[reportUnusedFunction]
    """Add kinds, controllers and webhooks to a project."""


@group.command(cls=GoFlags)
def api(
    group: GroupOption = None,
    version: VersionOption = None,
    kind: KindOption = None,
    plural: Plural = "",
    resource: Annotated[
        bool | None, typer.Option("--resource/--no-resource", help="Write the types; asked unless given.")
    ] = None,
    controller: Annotated[
        bool | None, typer.Option("--controller/--no-controller", help="Write a controller; asked unless given.")
    ] = None,
    namespaced: Annotated[
        bool, typer.Option("--namespaced/--no-namespaced", help="Whether objects are in namespaces.")
    ] = True,
    crd_version: Annotated[
        str, typer.Option(help="Forms of the definition, such as v1,v1beta1 for Kubernetes before 1.16 too.")
    ] = "v1",
    force: Force = False,
    dry_run: DryRun = False,
) -> None:
    """Write a kind, its controller, a sample, roles for people, and tests of all three tiers.

    Without --resource, the controller is for a kind that the project or Kubernetes has.

    Example: steersman create api --group mygroup --version v1alpha1 --kind DatabaseUser

    Example: steersman create api --group apps --version v1 --kind Deployment --resource=false --controller
    """
    with told_plainly():
        project = Project.here()
        place = _place(project, group, version, kind, plural)
        resource = _wanted(resource, "Write the types?")
        controller = _wanted(controller, "Write a controller?")
        if not resource and not controller:
            raise ConfigurationError("neither --resource nor --controller: there is nothing to write")
        if bad := [v for v in crd_version.split(",") if v not in _CRD_VERSIONS]:
            raise ConfigurationError(f"--crd-version: {', '.join(bad)} is none of {', '.join(_CRD_VERSIONS)}")
        known = place.entry
        path = place.own_path if resource or (known and "path" in known) else _builtin(place)
        own = path == place.own_path
        answers = {**_answers(project, place), "namespaced": namespaced, "own": own, "path": path}
        answers["storage"] = not any(r for r in project.resources if _same_kind(r, place) and "api" in r)
        parts = [*(["resource"] * resource), *(["controller"] * controller), *(["both"] * (own and controller))]
        files: dict[str, str] = {}
        for part in parts:
            files |= rendered("api", {**answers, "part": part})
        edits = _edits(project, place, path, resource=resource, controller=controller)
        entry = known or {"group": place.group, "version": place.version, "kind": place.kind}
        if own:
            entry |= {"domain": project.domain, "path": path, "plural": place.plural}
        if resource:
            entry["api"] = {"crdVersion": crd_version, "namespaced": namespaced}
        if controller:
            entry["controller"] = True
        _finish(project, entry, files, edits, force=force, dry_run=dry_run)


@group.command(cls=GoFlags)
def webhook(
    group: GroupOption = None,
    version: VersionOption = None,
    kind: KindOption = None,
    defaulting: Annotated[
        bool, typer.Option("--defaulting/--no-defaulting", help="Fill in what is left out.")
    ] = False,
    programmatic_validation: Annotated[
        bool,
        typer.Option(
            "--programmatic-validation/--no-programmatic-validation", help="Say what is wrong with objects."
        ),
    ] = False,
    force: Force = False,
    dry_run: DryRun = False,
) -> None:
    """Write a webhook for a kind: of the project, after `create api`, or one of Kubernetes' own.

    Example: steersman create webhook --group mygroup --version v1alpha1 --kind DatabaseUser --defaulting

    Example: steersman create webhook --group "" --version v1 --kind Pod --programmatic-validation
    """
    with told_plainly():
        project = Project.here()
        place = _place(project, group, version, kind, "")
        if not defaulting and not programmatic_validation:
            raise ConfigurationError("say what it does: --defaulting, --programmatic-validation, or both")
        own = place.entry is not None and "path" in place.entry
        path = place.own_path if own else _builtin(place)
        answers = {**_answers(project, place), "own": own, "path": path}
        answers |= {"defaulting": defaulting, "validation": programmatic_validation, "function": place.module}
        files: dict[str, str] = {}
        for part in ("admission", *(["tests"] * own)):
            files |= rendered("webhook", {**answers, "part": part})
        function = f"setup_{place.module}_webhook_with_manager"
        imported = f"from {project.package}.webhooks.{place.module} import {function}"
        main = f"src/{project.package}/main.py"
        text = entered(_text(project, main), "imports", [imported], where=main)
        edits = {
            main: entered(text, "setup", [f"{function}(manager)"], where=main),
            **_listed(project, "default", "default", "../webhook"),
        }
        entry = place.entry or {"group": place.group, "version": place.version, "kind": place.kind}
        entry["webhooks"] = {
            "defaulting": defaulting,
            "validation": programmatic_validation,
            "webhookVersion": "v1",
        }
        _finish(project, entry, files, edits, force=force, dry_run=dry_run)


@dataclass(frozen=True)
class _Place:
    """A kind, and what it is called in files."""

    project: Project
    group: str
    version: str
    kind: str
    plural: str

    @property
    def module(self) -> str:
        lower = self.kind.lower()
        return f"{lower}_" if iskeyword(lower) else lower

    @property
    def own_path(self) -> str:
        return f"{self.project.package}.api.{self.version}.{self.module}"

    @property
    def entry(self) -> dict[str, Any] | None:
        return self.project.resource(self.group, self.version, self.kind)


def _place(project: Project, group: str | None, version: str | None, kind: str | None, plural: str) -> _Place:
    kind = needed(kind, "--kind", "Kind, such as DatabaseUser", _kind_problem)
    version = needed(version, "--version", "Version, such as v1alpha1", _version_problem)
    group = needed(group, "--group", "Group, such as mygroup", _group_problem)
    return _Place(project, group, version, kind, plural or plural_of(kind))


def plural_of(kind: str) -> str:
    """The usual English plural of a kind, in lower case."""
    word = kind.lower()
    if word.endswith("y") and word[-2:-1] not in ("a", "e", "i", "o", "u", ""):
        return f"{word[:-1]}ies"
    if word.endswith(("s", "x", "z", "ch", "sh")):
        return f"{word}es"
    return f"{word}s"


def _kind_problem(kind: str) -> str | None:
    return None if _KIND.fullmatch(kind) else "a name as of a class is needed, such as DatabaseUser"


def _version_problem(version: str) -> str | None:
    return None if _VERSION.fullmatch(version) else "a version is needed, such as v1, v1alpha1 or v2beta1"


def _group_problem(group: str) -> str | None:
    parts = group.split(".")
    fits = not group or all(_LABEL.fullmatch(p) for p in parts)
    return None if fits else "lower-case letters, digits and - are needed, such as mygroup"


def _wanted(answer: bool | None, question: str) -> bool:
    if answer is None:
        return typer.confirm(question, default=True) if sys.stdin.isatty() else True
    return answer


def _same_kind(entry: dict[str, Any], place: _Place) -> bool:
    same = (entry.get("group", ""), entry["kind"]) == (place.group, place.kind)
    return same and entry["version"] != place.version


def _builtin(place: _Place) -> str:
    """The module of a kind of Kubernetes' own. Raises ConfigurationError: there is none."""
    short = place.group.partition(".")[0] or "core"
    path = f"steersman.api.{short}_{place.version}"
    try:
        found = hasattr(import_module(path), place.kind)
    except ModuleNotFoundError:
        found = False
    if not found:
        raise ConfigurationError(
            f"the project has no {place.kind} of {place.group}/{place.version}, and Steersman has no type of it: "
            "make it by `steersman create api --resource`"
        )
    return path


def _answers(project: Project, place: _Place) -> dict[str, Any]:
    file = project.root / ".copier-answers.yml"
    try:
        answers: dict[str, Any] = yaml.safe_load(file.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise ConfigurationError(f"cannot read {file}: {error}") from error
    qualified = ".".join(p for p in (place.group, project.domain) if p)
    kept = {k: v for k, v in answers.items() if not k.startswith("_")}
    named = {"group": place.group, "version": place.version, "kind": place.kind, "plural": place.plural}
    return {**kept, **named, "module": place.module, "qualified_group": qualified, "package": project.package}


def _edits(project: Project, place: _Place, path: str, *, resource: bool, controller: bool) -> dict[str, str]:
    edits: dict[str, str] = {}
    lower = place.kind.lower()
    if resource:
        crd = f"bases/{place.group}{'.' if place.group else ''}{project.domain}_{place.plural}.yaml"
        edits |= _listed(project, "crd", "crds", crd)
        edits |= _listed(project, "samples", "samples", f"{place.group}_{place.version}_{lower}.yaml")
        edits |= _listed(project, "rbac", "rbac", f"{lower}_editor_role.yaml", f"{lower}_viewer_role.yaml")
    if controller:
        main = f"src/{project.package}/main.py"
        reconciler = f"{place.kind}Reconciler"
        imported = f"from {project.package}.controllers.{place.module} import {reconciler}"
        text = entered(_text(project, main), "imports", [imported], where=main)
        edits[main] = entered(text, "setup", [f"{reconciler}.setup_with_manager(manager)"], where=main)
    return edits


def _listed(project: Project, directory: str, marker: str, *entries: str) -> dict[str, str]:
    name = f"config/{directory}/kustomization.yaml"
    return {name: entered(_text(project, name), marker, [f"  - {e}" for e in entries], where=name)}


def _text(project: Project, name: str) -> str:
    path = project.root / name
    try:
        return path.read_text()
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}") from error


def _finish(
    project: Project,
    entry: dict[str, Any],
    files: dict[str, str],
    edits: dict[str, str],
    *,
    force: bool,
    dry_run: bool,
) -> None:
    from steersman.cli.manifests import generate_in_background

    if not any(r is entry for r in project.resources):
        project.resources.append(entry)
    edits = {name: text for name, text in edits.items() if text != _text(project, name)}
    write(project.root, files, force=force, dry_run=dry_run, edits={**edits, FILE: as_text(project.content)})
    if not dry_run:
        generate_in_background(project)
