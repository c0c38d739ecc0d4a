"""``steersman create``: kinds, controllers and webhooks of a project."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, replace
from importlib import import_module
from keyword import iskeyword
from typing import Annotated, Any

import typer
import yaml

from steersman.errors import ConfigurationError
from steersman_cli.ending import GoFlags, needed, told_plainly
from steersman_cli.markers import Edits, entered
from steersman_cli.project import FILE, Project, as_text
from steersman_cli.templating import rendered, write

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
        bool | None,
        typer.Option(
            "--namespaced/--no-namespaced",
            help="Whether objects are in namespaces; as in the kind's other version, or yes, unless given.",
        ),
    ] = None,
    storage: Annotated[
        bool | None,
        typer.Option(
            "--storage/--no-storage",
            help="Whether a further version of a kind is the one that is stored; asked unless given.",
        ),
    ] = None,
    crd_version: Annotated[
        str, typer.Option(help="Forms of the definition, such as v1,v1beta1 for Kubernetes before 1.16 too.")
    ] = "v1",
    force: Force = False,
    dry_run: DryRun = False,
) -> None:
    """Write a kind, its controller, a sample, roles for people, and tests of all three tiers.

    Without --resource, the controller is for a kind that the project or Kubernetes has. A further version of a kind
    has the roles and the controller that are there.

    Example: steersman create api --group mygroup --version v1alpha1 --kind DatabaseUser

    Example: steersman create api --group mygroup --version v1beta1 --kind DatabaseUser --storage

    Example: steersman create api --group apps --version v1 --kind Deployment --resource=false --controller
    """
    with told_plainly():
        project = Project.here()
        place = _place(project, group, version, kind, plural)
        former = place.former
        resource = _wanted(resource, "Write the types?")
        # One controller reconciles a kind, whichever version its objects were written in.
        controller = _wanted(controller, "Write a controller?", default=not any("controller" in r for r in former))
        if not resource and not controller:
            raise ConfigurationError("neither --resource nor --controller: there is nothing to write")
        if bad := [v for v in crd_version.split(",") if v not in _CRD_VERSIONS]:
            raise ConfigurationError(f"--crd-version: {', '.join(bad)} is none of {', '.join(_CRD_VERSIONS)}")
        if namespaced is None:
            namespaced = former[0]["api"]["namespaced"] if former else True
        known = place.entry
        path = place.own_path if resource or (known and "path" in known) else _builtin(place)
        own = path == place.own_path
        answers = {**_answers(project, place), "namespaced": namespaced, "own": own, "path": path}
        answers |= {"storage": _is_stored(storage, place), "further": bool(former)}
        parts = [*(["resource"] * resource), *(["roles"] * (resource and not former))]
        parts += [*(["controller"] * controller), *(["both"] * (own and controller))]
        files: dict[str, str] = {}
        for part in parts:
            files |= rendered("api", {**answers, "part": part})
        edits = Edits(project)
        if resource:
            _enter_resource(edits, place)
            if former and answers["storage"]:
                _store_no_more(edits, place)
        if controller:
            reconciler = f"{place.kind}Reconciler"
            imported = f"from {project.package}.controllers.{place.module} import {reconciler}"
            edits.enter_main(imported, f"{reconciler}.setup_with_manager(manager)")
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
    conversion: Annotated[
        bool,
        typer.Option("--conversion/--no-conversion", help="Convert between versions; this one is the hub."),
    ] = False,
    spoke: Annotated[
        list[str] | None,
        typer.Option(help="A version that becomes the hub and comes from it; by commas, or given several times."),
    ] = None,
    force: Force = False,
    dry_run: DryRun = False,
) -> None:
    """Write a webhook for a kind: of the project, after `create api`, or one of Kubernetes' own.

    Example: steersman create webhook --group mygroup --version v1alpha1 --kind DatabaseUser --defaulting

    Example: steersman create webhook --group mygroup --version v1 --kind DatabaseUser --conversion --spoke v1alpha1

    Example: steersman create webhook --group "" --version v1 --kind Pod --programmatic-validation
    """
    with told_plainly():
        project = Project.here()
        place = _place(project, group, version, kind, "")
        wanted = {"defaulting": defaulting, "validation": programmatic_validation, "conversion": conversion}
        if not any(wanted.values()):
            raise ConfigurationError("say what it does: --defaulting, --programmatic-validation, --conversion")
        spokes = _spokes(place, spoke, conversion)
        own = place.entry is not None and "path" in place.entry
        path = place.own_path if own else _builtin(place)
        answers = {**_answers(project, place), **wanted, "own": own, "path": path, "function": place.module}
        files: dict[str, str] = {}
        edits = Edits(project)
        if defaulting or programmatic_validation:
            for part in ("admission", *(["tests"] * own)):
                files |= rendered("webhook", {**answers, "part": part})
            function = f"setup_{place.module}_webhook_with_manager"
            imported = f"from {project.package}.webhooks.{place.module} import {function}"
            edits.enter_main(imported, f"{function}(manager)")
        if conversion:
            files |= _conversion(edits, place, answers, spokes)
        edits.list("default", "default", "../webhook")
        entry = place.entry or {"group": place.group, "version": place.version, "kind": place.kind}
        noted: dict[str, Any] = entry.setdefault("webhooks", {"webhookVersion": "v1"})
        noted |= {name: True for name, is_wanted in wanted.items() if is_wanted}
        if spokes:
            noted["spoke"] = sorted({*noted.get("spoke", ()), *spokes})
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
    def sample(self) -> str:
        return "_".join(part for part in (self.group, self.version, self.kind.lower()) if part)

    @property
    def own_path(self) -> str:
        return f"{self.project.package}.api.{self.version}.{self.module}"

    @property
    def entry(self) -> dict[str, Any] | None:
        return self.project.resource(self.group, self.version, self.kind)

    @property
    def former(self) -> list[dict[str, Any]]:
        """The entries of the kind's other versions."""
        return [r for r in self.project.resources if _same_kind(r, self) and "api" in r]


def _place(project: Project, group: str | None, version: str | None, kind: str | None, plural: str) -> _Place:
    kind = needed(kind, "--kind", "Kind, such as DatabaseUser", _kind_problem)
    version = needed(version, "--version", "Version, such as v1alpha1", _version_problem)
    group = needed(group, "--group", "Group, such as mygroup", _group_problem)
    place = _Place(project, group, version, kind, plural or plural_of(kind))
    noted = [r["plural"] for r in (place.entry, *place.former) if r and "plural" in r]
    return place if plural or not noted else replace(place, plural=noted[0])


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


def _wanted(answer: bool | None, question: str, *, default: bool = True) -> bool:
    if answer is None:
        return typer.confirm(question, default=default) if sys.stdin.isatty() else default
    return answer


def _is_stored(answer: bool | None, place: _Place) -> bool:
    """Whether the version is the one in which objects are stored."""
    others = ", ".join(r["version"] for r in place.former)
    if others:
        question = f"Store objects in {place.version} from now on, in place of {others}?"
        return _wanted(answer, question, default=False)
    if answer is False:
        raise ConfigurationError(f"--no-storage: {place.version} is the only version, and one has to be stored")
    return True


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
    named |= {"sample": place.sample}
    return {**kept, **named, "module": place.module, "qualified_group": qualified, "package": project.package}


def _enter_resource(edits: Edits, place: _Place) -> None:
    lower = place.kind.lower()
    domain = f"{'.' if place.group else ''}{place.project.domain}"
    edits.list("crd", "crds", f"bases/{place.group}{domain}_{place.plural}.yaml")
    edits.list("samples", "samples", f"{place.sample}.yaml")
    edits.list("rbac", "rbac", f"{lower}_editor_role.yaml", f"{lower}_viewer_role.yaml")


_VERSION_ARGUMENT = r"(\n[ ]*)version=[\"']{version}[\"'],"


def _store_no_more(edits: Edits, place: _Place) -> None:
    """Has the kind's other versions say that they are not the one that is stored."""
    for former in place.former:
        name = f"src/{former['path'].replace('.', '/')}.py"
        text = edits.text(name)
        if "storage=False" in text:
            continue
        changed, found = re.subn(
            _VERSION_ARGUMENT.format(version=former["version"]), r"\g<0>\g<1>storage=False,", text, count=1
        )
        if found:
            edits.change(name, changed)
        else:
            typer.echo(f"steersman: say storage=False in @resource(…) in {name}: one version is stored", err=True)


def _spokes(place: _Place, given: list[str] | None, conversion: bool) -> list[str]:
    """The versions that ``--spoke`` names. Raises ConfigurationError: there is no such version."""
    spokes = list(dict.fromkeys(part.strip() for value in given or () for part in value.split(",") if part.strip()))
    if conversion != bool(spokes):
        raise ConfigurationError("--conversion and --spoke belong together: --version is the hub, --spoke the others")
    if place.version in spokes:
        raise ConfigurationError(f"--spoke {place.version}: that is the hub")
    for version in (place.version, *spokes) if conversion else ():
        entry = place.project.resource(place.group, version, place.kind)
        if entry is None or "path" not in entry:
            raise ConfigurationError(
                f"the project has no {place.kind} of {place.group}/{version}: "
                f"steersman create api --group {place.group} --version {version} --kind {place.kind}"
            )
    return spokes


def _conversion(edits: Edits, place: _Place, answers: dict[str, Any], spokes: list[str]) -> dict[str, str]:
    """The files of a hub and its spokes; a hub that is there gets more spokes."""
    package, module = place.project.package, place.module
    name = f"src/{package}/webhooks/{module}_conversion.py"
    constant = place.plural.upper().replace("-", "_")
    answers = {**answers, "constant": constant}
    files: dict[str, str] = {}
    if edits.is_there(name):
        hub = edits.text(name)
    else:
        files = rendered("webhook", {**answers, "part": "hub"})
        hub = files[name]
    for version in spokes:
        files |= rendered("webhook", {**answers, "part": "spoke", "spoke": version})
        short = version.upper()
        imported = f"from {package}.webhooks.{module}_conversion_{version} import SPOKE as {short}"
        hub = entered(entered(hub, "imports", [imported], where=name), "spokes", [f"{short},"], where=name)
    if name in files:
        files[name] = hub
    else:
        edits.change(name, hub)
    imported = f"from {package}.webhooks.{module}_conversion import {constant}"
    edits.enter_main(imported, f"manager.conversion({constant})")
    return files


def _finish(
    project: Project,
    entry: dict[str, Any],
    files: dict[str, str],
    edits: Edits,
    *,
    force: bool,
    dry_run: bool,
) -> None:
    from steersman_cli.manifests import generate_in_background

    if not any(r is entry for r in project.resources):
        project.resources.append(entry)
    changes = {**edits.changes, FILE: as_text(project.content)}
    write(project.root, files, force=force, dry_run=dry_run, edits=changes)
    if not dry_run:
        generate_in_background(project)
