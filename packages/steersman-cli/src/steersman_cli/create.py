"""``steersman create``: add kinds, controllers and webhooks to a project."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from keyword import iskeyword
from typing import Annotated, Any

import typer
import yaml

from steersman.errors import ConfigurationError
from steersman_cli.exit_codes import GoFlags, prompt_if_missing, report_errors
from steersman_cli.project import PROJECT_FILE, Project, to_project_yaml
from steersman_cli.project_files import FileEdits, insert_at_marker, write_files
from steersman_cli.templating import render_template

group = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Add kinds, controllers and webhooks to a project."
)
"""The commands below ``steersman create``."""

_LABEL_PATTERN = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_VERSION_PATTERN = re.compile(r"v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?")
_KIND_PATTERN = re.compile(r"[A-Z][A-Za-z0-9]{0,62}")
_CRD_VERSIONS = ("v1", "v1beta1")

GroupOption = Annotated[str | None, typer.Option("--group", help="API group without the domain, such as mygroup.")]
VersionOption = Annotated[str | None, typer.Option("--version", help="API version, such as v1alpha1.")]
KindOption = Annotated[str | None, typer.Option("--kind", help="Kind, such as DatabaseUser.")]
PluralOption = Annotated[str, typer.Option(help="Plural of the kind in URLs. Defaults to the English plural.")]
OverwriteOption = Annotated[bool, typer.Option("--force", help="Overwrite existing files.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Print the files that would be written.")]


@group.callback()
def _create() -> None:  # pyright: ignore[reportUnusedFunction]
    """Add kinds, controllers and webhooks to a project."""


@group.command(cls=GoFlags)
def api(
    group: GroupOption = None,
    version: VersionOption = None,
    kind: KindOption = None,
    plural: PluralOption = "",
    resource: Annotated[
        bool | None, typer.Option("--resource/--no-resource", help="Write the API types. Defaults to a prompt.")
    ] = None,
    controller: Annotated[
        bool | None, typer.Option("--controller/--no-controller", help="Write a controller. Defaults to a prompt.")
    ] = None,
    namespaced: Annotated[
        bool | None,
        typer.Option(
            "--namespaced/--no-namespaced",
            help="Scope of the kind. Defaults to the scope of its other versions, or namespaced.",
        ),
    ] = None,
    storage: Annotated[
        bool | None,
        typer.Option(
            "--storage/--no-storage",
            help="Make a further version the storage version. Defaults to a prompt.",
        ),
    ] = None,
    crd_version: Annotated[
        str, typer.Option(help="API versions of the CRD, such as v1,v1beta1 for Kubernetes before 1.16.")
    ] = "v1",
    force: OverwriteOption = False,
    dry_run: DryRunOption = False,
) -> None:
    """Write the API types of a kind and its controller.

    The command also writes a sample, roles for users, and tests.

    With --no-resource, the controller reconciles an existing kind of the project or of Kubernetes. A further version
    of a kind shares the roles and the controller.

    Example: steersman create api --group mygroup --version v1alpha1 --kind DatabaseUser

    Example: steersman create api --group mygroup --version v1beta1 --kind DatabaseUser --storage

    Example: steersman create api --group apps --version v1 --kind Deployment --resource=false --controller
    """
    with report_errors():
        project = Project.from_working_directory()
        target = _resolve_target(project, group, version, kind, plural)
        other_versions = target.other_versions
        resource = _confirm(resource, "Write the API types?")
        # One controller reconciles all versions of a kind.
        controller = _confirm(
            controller, "Write a controller?", default=not any("controller" in r for r in other_versions)
        )
        if not resource and not controller:
            raise ConfigurationError("nothing to write: give --resource, --controller or both")
        if bad := [v for v in crd_version.split(",") if v not in _CRD_VERSIONS]:
            raise ConfigurationError(f"--crd-version: {', '.join(bad)} is none of {', '.join(_CRD_VERSIONS)}")
        if namespaced is None:
            namespaced = other_versions[0]["api"]["namespaced"] if other_versions else True
        existing = target.entry
        path = target.own_module if resource or (existing and "path" in existing) else _builtin_module(target)
        is_own = path == target.own_module
        variables = {**_template_variables(project, target), "namespaced": namespaced, "own": is_own, "path": path}
        variables |= {"storage": _choose_storage_version(storage, target), "further": bool(other_versions)}
        parts = [*(["resource"] * resource), *(["roles"] * (resource and not other_versions))]
        parts += [*(["controller"] * controller), *(["both"] * (is_own and controller))]
        files: dict[str, str] = {}
        for part in parts:
            files |= render_template("api", {**variables, "part": part})
        _require_unused_name(target.kind, files)
        edits = FileEdits(project)
        if resource:
            _register_resource(edits, target)
            if other_versions and variables["storage"]:
                _unset_storage_version(edits, target)
        if controller:
            reconciler = f"{target.kind}Reconciler"
            import_line = f"from {project.package}.controllers.{target.module} import {reconciler}"
            edits.add_to_main(import_line, f"{reconciler}.setup_with_manager(manager)")
        entry = existing or {"group": target.group, "version": target.version, "kind": target.kind}
        if is_own:
            entry |= {"domain": project.domain, "path": path, "plural": target.plural}
        if resource:
            entry["api"] = {"crdVersion": crd_version, "namespaced": namespaced}
        if controller:
            entry["controller"] = True
        _write_scaffold(project, entry, files, edits, force=force, dry_run=dry_run)
        if not dry_run:
            source = f"src/{project.package}"
            edited = [f"{source}/api/{target.version}/{target.module}.py (types)"] * resource
            edited += [f"{source}/controllers/{target.module}.py (logic)"] * controller
            typer.echo(f"\nNext: edit {' and '.join(edited)}.")
            typer.echo("`make test` runs the tests, and `steersman dev` the operator.")


@group.command(cls=GoFlags)
def webhook(
    group: GroupOption = None,
    version: VersionOption = None,
    kind: KindOption = None,
    defaulting: Annotated[
        bool, typer.Option("--defaulting/--no-defaulting", help="Set defaults of omitted fields.")
    ] = False,
    programmatic_validation: Annotated[
        bool,
        typer.Option("--programmatic-validation/--no-programmatic-validation", help="Validate objects in code."),
    ] = False,
    conversion: Annotated[
        bool,
        typer.Option("--conversion/--no-conversion", help="Convert between versions; --version is the hub."),
    ] = False,
    spoke: Annotated[
        list[str] | None,
        typer.Option(help="Version to convert to and from the hub; comma-separated or repeated."),
    ] = None,
    force: OverwriteOption = False,
    dry_run: DryRunOption = False,
) -> None:
    """Write a webhook for a kind of the project or of Kubernetes.

    Example: steersman create webhook --group mygroup --version v1alpha1 --kind DatabaseUser --defaulting

    Example: steersman create webhook --group mygroup --version v1 --kind DatabaseUser --conversion --spoke v1alpha1

    Example: steersman create webhook --group "" --version v1 --kind Pod --programmatic-validation
    """
    with report_errors():
        project = Project.from_working_directory()
        target = _resolve_target(project, group, version, kind, "")
        features = {"defaulting": defaulting, "validation": programmatic_validation, "conversion": conversion}
        if not any(features.values()):
            raise ConfigurationError(
                "the webhook has no function: give --defaulting, --programmatic-validation or --conversion"
            )
        spokes = _parse_spokes(target, spoke, conversion)
        is_own = target.entry is not None and "path" in target.entry
        path = target.own_module if is_own else _builtin_module(target)
        variables = {
            **_template_variables(project, target),
            **features,
            "own": is_own,
            "path": path,
            "function": target.module,
        }
        files: dict[str, str] = {}
        edits = FileEdits(project)
        if defaulting or programmatic_validation:
            for part in ("admission", *(["tests"] * is_own)):
                files |= render_template("webhook", {**variables, "part": part})
            function = f"setup_{target.module}_webhook_with_manager"
            import_line = f"from {project.package}.webhooks.{target.module} import {function}"
            edits.add_to_main(import_line, f"{function}(manager)")
        if conversion:
            files |= _render_conversion(edits, target, variables, spokes)
        edits.add_to_kustomization("default", "default", "../webhook")
        entry = target.entry or {"group": target.group, "version": target.version, "kind": target.kind}
        recorded: dict[str, Any] = entry.setdefault("webhooks", {"webhookVersion": "v1"})
        recorded |= {name: True for name, is_wanted in features.items() if is_wanted}
        if spokes:
            recorded["spoke"] = sorted({*recorded.get("spoke", ()), *spokes})
        _write_scaffold(project, entry, files, edits, force=force, dry_run=dry_run)


@dataclass(frozen=True)
class _ScaffoldTarget:
    """A kind, with its names in the files of the project."""

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
    def own_module(self) -> str:
        return f"{self.project.package}.api.{self.version}.{self.module}"

    @property
    def entry(self) -> dict[str, Any] | None:
        return self.project.find_resource(self.group, self.version, self.kind)

    @property
    def other_versions(self) -> list[dict[str, Any]]:
        """PROJECT entries of the other versions of the kind."""
        return [r for r in self.project.resources if _is_other_version(r, self) and "api" in r]


def _resolve_target(
    project: Project, group: str | None, version: str | None, kind: str | None, plural: str
) -> _ScaffoldTarget:
    kind = prompt_if_missing(kind, "--kind", "Kind, such as DatabaseUser", _kind_error)
    version = prompt_if_missing(version, "--version", "Version, such as v1alpha1", _version_error)
    group = prompt_if_missing(group, "--group", "Group, such as mygroup", _group_error)
    if plural and not _LABEL_PATTERN.fullmatch(plural):
        raise ConfigurationError(f"--plural {plural!r}: use lower-case letters, digits and -, such as databaseusers")
    target = _ScaffoldTarget(project, group, version, kind, plural or pluralize(kind))
    if target.entry is None:
        _require_unused_files(target)
    recorded_plurals = [r["plural"] for r in (target.entry, *target.other_versions) if r and "plural" in r]
    return target if plural or not recorded_plurals else replace(target, plural=recorded_plurals[0])


def _require_unused_files(target: _ScaffoldTarget) -> None:
    """Raise ConfigurationError if the files of another kind have the same names."""
    for other in target.project.resources:
        names = other.get("group", ""), other["kind"]
        if names != (target.group, target.kind) and other["kind"].lower() == target.kind.lower():
            group = f" of group {names[0]}" if names[0] else ""
            raise ConfigurationError(
                f"--kind {target.kind!r}: the project has {other['kind']}{group}, whose files have the same names: "
                "choose another name"
            )


def pluralize(kind: str) -> str:
    """Return the English plural of a kind, in lower case."""
    word = kind.lower()
    if word.endswith("y") and word[-2:-1] not in ("a", "e", "i", "o", "u", ""):
        return f"{word[:-1]}ies"
    if word.endswith(("s", "x", "z", "ch", "sh")):
        return f"{word}es"
    return f"{word}s"


def _kind_error(kind: str) -> str | None:
    if iskeyword(kind):
        return "it is a Python keyword: use a name such as DatabaseUser"
    return None if _KIND_PATTERN.fullmatch(kind) else "use a name in CamelCase, such as DatabaseUser"


def _version_error(version: str) -> str | None:
    return None if _VERSION_PATTERN.fullmatch(version) else "use a version such as v1, v1alpha1 or v2beta1"


def _group_error(group: str) -> str | None:
    parts = group.split(".")
    valid = not group or all(_LABEL_PATTERN.fullmatch(p) for p in parts)
    return None if valid else "use lower-case letters, digits and -, such as mygroup"


def _require_unused_name(kind: str, files: Mapping[str, str]) -> None:
    """Raise ConfigurationError if a generated module needs another ``kind``."""
    for path, text in files.items():
        if not path.endswith(".py"):
            continue
        nodes = list(ast.walk(ast.parse(text)))
        names = [node.name for node in nodes if isinstance(node, ast.ClassDef)]
        names += [each.name for node in nodes if isinstance(node, ast.ImportFrom) for each in node.names]
        names += [node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
        if names.count(kind) > 1:
            raise ConfigurationError(f"--kind {kind!r}: {path} needs another {kind}: choose another name")


def _confirm(choice: bool | None, question: str, *, default: bool = True) -> bool:
    if choice is None:
        return typer.confirm(question, default=default) if sys.stdin.isatty() else default
    return choice


def _choose_storage_version(choice: bool | None, target: _ScaffoldTarget) -> bool:
    """Return True if the new version becomes the storage version."""
    others = ", ".join(r["version"] for r in target.other_versions)
    if others:
        question = f"Store objects in {target.version} from now on, in place of {others}?"
        return _confirm(choice, question, default=False)
    if choice is False:
        raise ConfigurationError(
            f"--no-storage: {target.version} is the only version; one version must be the storage version"
        )
    return True


def _is_other_version(entry: dict[str, Any], target: _ScaffoldTarget) -> bool:
    same = (entry.get("group", ""), entry["kind"]) == (target.group, target.kind)
    return same and entry["version"] != target.version


def _builtin_module(target: _ScaffoldTarget) -> str:
    """Return the module of a built-in kind.

    Raises:
        ConfigurationError: there is no such kind.
    """
    short = target.group.partition(".")[0] or "core"
    path = f"steersman.api.{short}_{target.version}"
    try:
        found = hasattr(import_module(path), target.kind)
    except ModuleNotFoundError:
        found = False
    if not found:
        raise ConfigurationError(
            f"the project has no {target.kind} of {target.group}/{target.version}, and Steersman has no type for it: "
            "create it with `steersman create api --resource`"
        )
    return path


def _template_variables(project: Project, target: _ScaffoldTarget) -> dict[str, Any]:
    file = project.root / ".copier-answers.yml"
    try:
        answers: dict[str, Any] = yaml.safe_load(file.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise ConfigurationError(f"cannot read {file}: {error}") from error
    qualified = ".".join(p for p in (target.group, project.domain) if p)
    project_answers = {k: v for k, v in answers.items() if not k.startswith("_")}
    names = {"group": target.group, "version": target.version, "kind": target.kind, "plural": target.plural}
    names |= {"sample": target.sample}
    return {
        **project_answers,
        **names,
        "module": target.module,
        "qualified_group": qualified,
        "package": project.package,
    }


def _register_resource(edits: FileEdits, target: _ScaffoldTarget) -> None:
    lower = target.kind.lower()
    domain = f"{'.' if target.group else ''}{target.project.domain}"
    edits.add_to_kustomization("crd", "crds", f"bases/{target.group}{domain}_{target.plural}.yaml")
    edits.add_to_kustomization("samples", "samples", f"{target.sample}.yaml")
    edits.add_to_kustomization("rbac", "rbac", f"{lower}_editor_role.yaml", f"{lower}_viewer_role.yaml")


_VERSION_ARGUMENT_PATTERN = r"(\n[ ]*)version=[\"']{version}[\"'],"


def _unset_storage_version(edits: FileEdits, target: _ScaffoldTarget) -> None:
    """Set ``storage=False`` in the other versions of the kind."""
    for other in target.other_versions:
        name = f"src/{other['path'].replace('.', '/')}.py"
        text = edits.text(name)
        if "storage=False" in text:
            continue
        changed, count = re.subn(
            _VERSION_ARGUMENT_PATTERN.format(version=other["version"]), r"\g<0>\g<1>storage=False,", text, count=1
        )
        if count:
            edits.set_text(name, changed)
        else:
            typer.echo(
                f"steersman: set storage=False in @resource(…) in {name}: one version is the storage version",
                err=True,
            )


def _parse_spokes(target: _ScaffoldTarget, values: list[str] | None, conversion: bool) -> list[str]:
    """Return the versions in ``--spoke``.

    Raises:
        ConfigurationError: the project has no such version.
    """
    spokes = list(dict.fromkeys(part.strip() for value in values or () for part in value.split(",") if part.strip()))
    if conversion != bool(spokes):
        raise ConfigurationError(
            "--conversion requires --spoke and vice versa: --version is the hub, --spoke the other versions"
        )
    if target.version in spokes:
        raise ConfigurationError(f"--spoke {target.version}: this version is the hub")
    for version in (target.version, *spokes) if conversion else ():
        entry = target.project.find_resource(target.group, version, target.kind)
        if entry is None or "path" not in entry:
            raise ConfigurationError(
                f"the project has no {target.kind} of {target.group}/{version}: "
                f"steersman create api --group {target.group} --version {version} --kind {target.kind}"
            )
    return spokes


def _render_conversion(
    edits: FileEdits, target: _ScaffoldTarget, variables: dict[str, Any], spokes: list[str]
) -> dict[str, str]:
    """Return the files of a hub and its spokes. Spokes are added to an existing hub."""
    package, module = target.project.package, target.module
    name = f"src/{package}/webhooks/{module}_conversion.py"
    constant = target.plural.upper().replace("-", "_")
    variables = {**variables, "constant": constant}
    files: dict[str, str] = {}
    if edits.exists(name):
        hub = edits.text(name)
    else:
        files = render_template("webhook", {**variables, "part": "hub"})
        hub = files[name]
    for version in spokes:
        files |= render_template("webhook", {**variables, "part": "spoke", "spoke": version})
        short = version.upper()
        import_line = f"from {package}.webhooks.{module}_conversion_{version} import SPOKE as {short}"
        hub = insert_at_marker(
            insert_at_marker(hub, "imports", [import_line], file_name=name), "spokes", [f"{short},"], file_name=name
        )
    if name in files:
        files[name] = hub
    else:
        edits.set_text(name, hub)
    import_line = f"from {package}.webhooks.{module}_conversion import {constant}"
    edits.add_to_main(import_line, f"manager.conversion({constant})")
    return files


def _write_scaffold(
    project: Project,
    entry: dict[str, Any],
    files: dict[str, str],
    edits: FileEdits,
    *,
    force: bool,
    dry_run: bool,
) -> None:
    from steersman_cli.manifests import generate_in_subprocess

    if not any(r is entry for r in project.resources):
        project.resources.append(entry)
    changes = {**edits.changes, PROJECT_FILE: to_project_yaml(project.content)}
    write_files(project.root, files, force=force, dry_run=dry_run, edits=changes)
    if not dry_run:
        generate_in_subprocess(project)
