"""Plan for the privileges of one user: exactly the declared grants."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from .desired import ALL, ANY, DesiredGrant, DesiredUser, SecurableKind
from .inspection import DatabaseContents, HeldPrivilege, Inspection, SecuredObject
from .sql_actions import GrantPrivileges, RevokePrivileges
from .sql_plan import SqlChange, SqlPlan, SqlStep

PrivilegesByKind = Callable[[Inspection], Mapping[SecurableKind, frozenset[str]]]
"""Privileges that a server supports, by kind of object."""


@dataclass(frozen=True, slots=True)
class GrantDialect:
    """Differences between engines in how privileges are granted.

    Attributes:
        acting: role that grants or revokes privileges on an owner's object.
        automatic: privileges that come with others and are not revoked.
        spelled: name of an object in a grant.
        option_apart: the grant option is a privilege of its own that covers all privileges on an object.
    """

    privileges_of: PrivilegesByKind
    grantor_role: Callable[[Inspection, str, str], str]
    is_implicit: Callable[[Inspection, DesiredUser, HeldPrivilege], bool]
    spell: Callable[[SecuredObject], str]
    separate_grant_option: bool = False


def plan_grants(inspection: Inspection, desired: DesiredUser, dialect: GrantDialect) -> SqlPlan:
    """Grant declared privileges that are missing. With `revoke_undeclared`, revoke those that are not declared.

    Privileges that the server does not support are `missing` as well. The other steps are planned all the same.
    """
    expected, missing = _desired_privileges(inspection, desired, dialect)
    held_privileges = list(_held_privileges(inspection, desired.name))
    if not desired.revoke_undeclared:
        return SqlPlan(tuple(_grants(inspection, desired, held_privileges, expected, dialect)), missing)
    # A grant to oneself has no effect, and would prevent the revocation of the original privilege.
    own = [one for one in held_privileges if one.grantor == desired.name]
    restored = [step for _, step in _revokes(inspection, desired, own, {}, dialect)]
    held_privileges = [one for one in held_privileges if one not in own]
    undeclared = [
        one
        for one in held_privileges
        if _is_undeclared(one, expected) and not dialect.is_implicit(inspection, desired, one)
    ]
    # The other steps run, so that a privilege that was passed on does not keep later ones from being revoked.
    not_revocable = _not_revocable(undeclared, held_privileges, _delegated(inspection, desired.name))
    missing += tuple(sorted({_explain_not_revocable(one, others, expected) for one, others in not_revocable.items()}))
    undeclared = [one for one in undeclared if one not in not_revocable]
    excess = {
        (one.target, one.privilege, one.grantor) for one in undeclared if (one.target, one.privilege) not in expected
    }
    # A revocation on a table also covers its columns: these are granted again rather than revoked again.
    lost = {
        one
        for one in held_privileges
        if one.target.column and (_parent_table(one.target), one.privilege, one.grantor) in excess
    }
    held_privileges = [one for one in held_privileges if one not in lost]
    narrowed = {(_parent_table(on), privilege) for on, privilege in expected if on.column is not None}
    first: list[SqlStep] = []
    last: list[SqlStep] = []
    for revoke, step in _revokes(
        inspection, desired, [one for one in undeclared if one not in lost], expected, dialect
    ):
        (first if any((revoke.target, one) in narrowed for one in revoke.privileges) else last).append(step)
    return SqlPlan(
        (*restored, *first, *_grants(inspection, desired, held_privileges, expected, dialect), *last), missing
    )


def _is_undeclared(one: HeldPrivilege, desired: DesiredPrivileges) -> bool:
    declared = desired.get((one.target, one.privilege))
    return declared is None or (one.grantable and not declared[1])


DelegatedGrants = Mapping[tuple[SecuredObject, str], set[str]]
"""Grantees by object and privilege."""


def _delegated(inspection: Inspection, name: str) -> DelegatedGrants:
    """Privileges that a user passed on by its grant option.

    It cannot lose the option while the grantees hold them.
    """
    found: dict[tuple[SecuredObject, str], set[str]] = defaultdict(set)
    for state in (*inspection.databases.values(), *inspection.contents.values()):
        for one in state.privileges:
            if one.grantor == name != one.grantee:
                # The grant option on a table includes its columns.
                for on in {one.target, _parent_table(one.target)}:
                    found[on, one.privilege].add(one.grantee or "everybody")
    return found


def _not_revocable(
    undeclared: list[HeldPrivilege], held_privileges: list[HeldPrivilege], delegated: DelegatedGrants
) -> Mapping[HeldPrivilege, set[str]]:
    """Privileges that a user cannot lose, with the grantees that prevent it.

    A revocation on a table also revokes on its columns.
    """
    of_columns: dict[tuple[SecuredObject, str, str], list[HeldPrivilege]] = defaultdict(list)
    for one in held_privileges:
        if one.target.column is not None:
            of_columns[_parent_table(one.target), one.privilege, one.grantor].append(one)
    found: dict[HeldPrivilege, set[str]] = {}
    for one in undeclared:
        revoked = [one, *of_columns.get((one.target, one.privilege, one.grantor), ())]
        others = {name for it in revoked if it.grantable for name in delegated.get((it.target, it.privilege), ())}
        if others:
            found[one] = others
    of_one = [
        one
        for one in found
        if (one.target, one.privilege, one.grantor) not in of_columns and one.target.column is None
    ]
    twice = _held_from_several(of_one, held_privileges, found)
    return {one: others for one, others in found.items() if one not in twice}


def _held_from_several(
    privileges: list[HeldPrivilege],
    held_privileges: list[HeldPrivilege],
    not_revocable: Mapping[HeldPrivilege, set[str]],
) -> set[HeldPrivilege]:
    """Privileges whose grant option has another grantor as well.

    Nothing depends on these. Two users that granted to each other would otherwise wait for each other for ever.
    Privileges from the user's own grantees are revoked first.
    """
    found: set[HeldPrivilege] = set()
    for one in sorted(privileges, key=lambda one: (one.grantor not in not_revocable[one], one.grantor)):
        same = {
            it for it in held_privileges if (it.target, it.privilege) == (one.target, one.privilege) and it.grantable
        }
        if same - found - {one}:
            found.add(one)
    return found


def _explain_not_revocable(one: HeldPrivilege, others: set[str], desired: DesiredPrivileges) -> str:
    what = f"the grant option for {one.privilege}" if (one.target, one.privilege) in desired else one.privilege
    names = ", ".join(sorted(others))
    return f"{one.grantee} keeps {what} on {one.target}, because it granted it to {names}: revoke that first"


def _parent_table(target: SecuredObject) -> SecuredObject:
    """Table of a column."""
    return replace(target, column=None)


DesiredPrivileges = dict[tuple[SecuredObject, str], tuple[str, bool]]
"""Owner of the object and grant option, by object and privilege."""


def _desired_privileges(
    inspection: Inspection, desired: DesiredUser, dialect: GrantDialect
) -> tuple[DesiredPrivileges, tuple[str, ...]]:
    expected: DesiredPrivileges = {}
    missing: list[str] = []
    for grant in desired.grants:
        found = _GrantTargets(inspection, grant, dialect.spell)
        privileges = _expanded(inspection, grant, dialect.privileges_of(inspection), found.missing)
        for on, owner in found.objects():
            if owner == desired.name:
                continue
            if grant.with_grant_option and dialect.separate_grant_option:
                expected[_parent_table(on), GRANT_OPTION] = owner, False
            for privilege in privileges:
                _, grantable = expected.get((on, privilege), (owner, False))
                expected[on, privilege] = (
                    owner,
                    grantable or (grant.with_grant_option and not dialect.separate_grant_option),
                )
        missing += found.missing
    return expected, tuple(dict.fromkeys(missing))


def _expanded(
    inspection: Inspection,
    grant: DesiredGrant,
    privileges_of: Mapping[SecurableKind, frozenset[str]],
    missing: list[str],
) -> frozenset[str]:
    known = privileges_of.get(grant.kind, frozenset[str]())
    if grant.columns:
        known &= ON_COLUMNS
    given = {_SYNONYMS.get(privilege, privilege) for privilege in grant.privileges}
    unknown = given - known - {ALL}
    if unknown or not known:
        named = " and ".join(sorted(unknown)) or ALL
        version = ".".join(map(str, inspection.version))
        place = "column" if grant.columns else grant.kind.value
        missing.append(f"{inspection.product} {version} has no {named} on a {place}")
    return known if ALL in given else known & given


ON_COLUMNS = frozenset({"SELECT", "INSERT", "UPDATE", "REFERENCES"})
"""Privileges that every engine supports for columns."""

GRANT_OPTION = "GRANT OPTION"
"""The grant option, where it is a privilege of its own."""

_SYNONYMS = {"TEMP": "TEMPORARY", "ALL PRIVILEGES": ALL}


class _GrantTargets:
    """Objects that a grant names, and the absent ones."""

    def __init__(self, inspection: Inspection, grant: DesiredGrant, spell: Callable[[SecuredObject], str]) -> None:
        self._survey = inspection
        self._grant = grant
        self._spell = spell
        self.missing: list[str] = []

    def objects(self) -> Iterator[tuple[SecuredObject, str]]:
        """Objects with their owners."""
        inside = self._survey.contents.get(self._grant.database, DatabaseContents())
        for on, owner in self._declared():
            if owner in inside.unassumable_roles:
                self.missing.append(
                    f"{on} belongs to {owner}, and the operator cannot grant as this role: change the owner"
                )
            else:
                yield on, owner

    def _declared(self) -> Iterator[tuple[SecuredObject, str]]:
        grant = self._grant
        if grant.kind is SecurableKind.SERVER:
            yield SecuredObject(SecurableKind.SERVER, grant.database), ""
            return
        database = self._survey.databases.get(grant.database)
        if database is None or not database.exists:
            self.missing.append(f"database {grant.database} does not exist yet")
            return
        if grant.kind is SecurableKind.DATABASE:
            yield SecuredObject(SecurableKind.DATABASE, grant.database), database.owner
            return
        inside = self._survey.contents.get(grant.database)
        if inside is None:
            why = self._survey.uninspected.get(grant.database)
            reason = f": {why}" if why else ""
            self.missing.append(f"database {grant.database} cannot be inspected{reason}")
            return
        if grant.schema is not None and grant.schema not in inside.schemas:
            self.missing.append(f"schema {grant.database}.{grant.schema} does not exist yet")
            return
        if grant.kind is SecurableKind.SCHEMA:
            schema = grant.schema or ""
            yield SecuredObject(SecurableKind.SCHEMA, grant.database, schema), inside.schemas[schema]
            return
        yield from self._named(inside)
        if grant.future:
            yield from self._future(database.owner)

    def _named(self, inside: DatabaseContents) -> Iterator[tuple[SecuredObject, str]]:
        grant = self._grant
        existing: dict[str, list[tuple[SecuredObject, str]]] = defaultdict(list)
        for on, owner in inside.objects.items():
            if on.kind is grant.kind and on.schema == grant.schema and on.column is None:
                existing[self._spell(on)].append((on, owner))
        if ANY in grant.names:
            yield from ((on, owner) for found in existing.values() for on, owner in found if owner)
            return
        for name in grant.names:
            found = existing.get(normalize_signature(name) if grant.kind is SecurableKind.FUNCTION else name, [])
            if not found:
                place = ".".join(part for part in (grant.database, grant.schema, name) if part)
                self.missing.append(f"{grant.kind.value} {place} does not exist yet{_ambiguity_hint(name, existing)}")
            for on, owner in found:
                if owner:
                    yield from self._columns(inside, on, owner) if grant.columns else [(on, owner)]
                else:
                    self.missing.append(f"{on} belongs to an extension, which manages its privileges")

    def _columns(
        self, inside: DatabaseContents, table: SecuredObject, owner: str
    ) -> Iterator[tuple[SecuredObject, str]]:
        for name in self._grant.columns:
            column = replace(table, column=name)
            if column in inside.objects:
                yield column, owner
            else:
                self.missing.append(f"{column} does not exist yet")

    def _future(self, owner: str) -> Iterator[tuple[SecuredObject, str]]:
        grant = self._grant
        for creator in grant.created_by or (owner,):
            if creator in self._survey.users or creator == owner:
                yield SecuredObject(grant.kind, grant.database, grant.schema, creator=creator), creator
            else:
                self.missing.append(f"role {creator} does not exist yet")


def normalize_signature(signature: str) -> str:
    """Name of a function with its types, as the server writes it."""
    return ", ".join(part.strip() for part in signature.split(","))


def _held_privileges(inspection: Inspection, name: str) -> Iterator[HeldPrivilege]:
    for database in inspection.databases.values():
        for privilege in database.privileges:
            if privilege.grantee == name != database.owner and not privilege.owner_has_same_name:
                yield privilege
    for inside in inspection.contents.values():
        for privilege in inside.privileges:
            if (
                privilege.grantee == name != _owner_of_target(inside, privilege.target)
                and not privilege.owner_has_same_name
            ):
                yield privilege


def _owner_of_target(inside: DatabaseContents, target: SecuredObject) -> str | None:
    return (
        inside.schemas.get(target.schema or "")
        if target.kind is SecurableKind.SCHEMA and not target.creator
        else None
    )


def _grants(
    inspection: Inspection,
    desired: DesiredUser,
    held_privileges: list[HeldPrivilege],
    expected: DesiredPrivileges,
    dialect: GrantDialect,
) -> Iterator[SqlStep]:
    there: dict[tuple[SecuredObject, str], bool] = defaultdict(bool)
    for privilege in held_privileges:
        there[privilege.target, privilege.privilege] |= privilege.grantable
    missing: dict[tuple[SecuredObject, str, bool], list[str]] = defaultdict(list)
    for (on, privilege), (owner, grantable) in expected.items():
        if (on, privilege) not in there or (grantable and not there[on, privilege]):
            missing[on, owner, grantable].append(privilege)
    for (on, owner, grantable), privileges in missing.items():
        names = tuple(sorted(privileges))
        step = GrantPrivileges(
            desired.name, on, names, dialect.grantor_role(inspection, on.database, owner), grantable
        )
        change = SqlChange("PrivilegesGranted", f"granted {', '.join(names)} on {on} to {desired.name}")
        yield SqlStep(step, change, independent=True)


def _revokes(
    inspection: Inspection,
    desired: DesiredUser,
    undeclared: list[HeldPrivilege],
    expected: DesiredPrivileges,
    dialect: GrantDialect,
) -> Iterator[tuple[RevokePrivileges, SqlStep]]:
    excess: dict[tuple[SecuredObject, str, bool], list[str]] = defaultdict(list)
    for one in undeclared:
        excess[one.target, one.grantor, (one.target, one.privilege) in expected].append(one.privilege)
    for (on, grantor, only_option), privileges in sorted(excess.items(), key=str):
        names = tuple(sorted(privileges))
        revoke = RevokePrivileges(
            desired.name, on, names, dialect.grantor_role(inspection, on.database, grantor), only_option
        )
        description = f"the grant option for {', '.join(names)}" if only_option else ", ".join(names)
        change = SqlChange("GrantRevoked", f"revoked {description} on {on} from {desired.name}")
        yield revoke, SqlStep(revoke, change, independent=True, always_run=True)


def _ambiguity_hint(name: str, existing: Iterable[str]) -> str:
    """Hint for functions of PostgreSQL with the same name.

    The argument types select one.
    """
    same_name = sorted(spelled for spelled in existing if spelled.startswith(f"{name}("))
    return f"; add the argument types, as in {same_name[0]}" if same_name else ""
