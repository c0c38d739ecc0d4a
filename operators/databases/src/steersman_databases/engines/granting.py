"""The plan for what one user may do, the same for every engine: exactly what is declared, granted by name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from .actions import Grant, Revoke
from .desired import ALL, EACH, DesiredGrant, DesiredUser, ObjectKind
from .errors import NotSupported
from .plan import Change, Plan, Step
from .survey import Inside, Privilege, SecuredObject, Survey

Vocabulary = Callable[[Survey], Mapping[ObjectKind, frozenset[str]]]
"""The privileges that a server knows, by the kind of object."""


@dataclass(frozen=True, slots=True)
class Granting:
    """How one engine's server grants.

    `acting` gives the role under which something of an owner is granted or revoked, `automatic` says that a
    privilege comes with owning a database and is not counted.
    """

    vocabulary: Vocabulary
    acting: Callable[[Survey, str, str], str]
    automatic: Callable[[DesiredUser, Privilege], bool]


def plan_grants(survey: Survey, desired: DesiredUser, how: Granting) -> Plan:
    """Grants what is declared and missing; with `desired.exact` also revokes what is not declared.

    Raises `NotSupported` for privileges that the server does not have.
    """
    wanted, missing = _wanted(survey, desired, how)
    held = [privilege for privilege in _held(survey, desired.name) if not how.automatic(desired, privilege)]
    revoked = _revokes(survey, desired, held, wanted, how) if desired.exact else ()
    # What others depend on cannot be revoked, and is told; by then the rest is granted.
    return Plan((*_grants(survey, desired, held, wanted, how), *revoked), missing)


Wanted = dict[tuple[SecuredObject, str], tuple[str, bool]]
"""Object and privilege → the object's owner, and whether it may be passed on."""


def _wanted(survey: Survey, desired: DesiredUser, how: Granting) -> tuple[Wanted, tuple[str, ...]]:
    wanted: Wanted = {}
    missing: list[str] = []
    for grant in desired.grants:
        privileges = _expanded(survey, grant, how.vocabulary(survey))
        found = _Found(survey, grant)
        for on, owner in found.objects():
            if owner == desired.name:
                continue
            for privilege in privileges:
                _, grantable = wanted.get((on, privilege), (owner, False))
                wanted[on, privilege] = owner, grantable or grant.with_grant_option
        missing += found.missing
    return wanted, tuple(dict.fromkeys(missing))


def _expanded(survey: Survey, grant: DesiredGrant, vocabulary: Mapping[ObjectKind, frozenset[str]]) -> frozenset[str]:
    known = vocabulary.get(grant.kind, frozenset[str]())
    given = {_SYNONYMS.get(privilege, privilege) for privilege in grant.privileges}
    unknown = given - known - {ALL}
    if unknown or not known:
        named = " and ".join(sorted(unknown)) or ALL
        version = ".".join(map(str, survey.version))
        raise NotSupported("grants", f"{survey.product} {version} has no {named} on a {grant.kind.value}")
    return known if ALL in given else frozenset(given)


_SYNONYMS = {"TEMP": "TEMPORARY", "ALL PRIVILEGES": ALL}


class _Found:
    """The objects that a grant names, and what of it is not there."""

    def __init__(self, survey: Survey, grant: DesiredGrant) -> None:
        self._survey = survey
        self._grant = grant
        self.missing: list[str] = []

    def objects(self) -> Iterator[tuple[SecuredObject, str]]:
        """Each object with its owner."""
        grant = self._grant
        database = self._survey.databases.get(grant.database)
        if database is None or not database.exists:
            self.missing.append(f"database {grant.database} is not there yet")
            return
        if grant.kind is ObjectKind.DATABASE:
            yield SecuredObject(ObjectKind.DATABASE, grant.database), database.owner
            return
        inside = self._survey.inside.get(grant.database)
        if inside is None:
            self.missing.append(f"database {grant.database} does not let the operator in")
            return
        if grant.schema is not None and grant.schema not in inside.schemas:
            self.missing.append(f"schema {grant.database}.{grant.schema} is not there yet")
            return
        if grant.kind is ObjectKind.SCHEMA:
            schema = grant.schema or ""
            yield SecuredObject(ObjectKind.SCHEMA, grant.database, schema), inside.schemas[schema]
            return
        yield from self._named(inside)
        if grant.future:
            yield from self._future(database.owner)

    def _named(self, inside: Inside) -> Iterator[tuple[SecuredObject, str]]:
        grant = self._grant
        there = {
            _spelled(on): (on, owner)
            for on, owner in inside.objects.items()
            if on.kind is grant.kind and on.schema == grant.schema
        }
        if EACH in grant.names:
            yield from ((on, owner) for on, owner in there.values() if owner)
            return
        for name in grant.names:
            found = there.get(_tidy(name) if grant.kind is ObjectKind.FUNCTION else name)
            if found is None:
                place = ".".join(part for part in (grant.database, grant.schema, name) if part)
                self.missing.append(f"{grant.kind.value} {place} is not there yet")
            elif not found[1]:
                raise NotSupported(
                    "grants", f"{found[0]} belongs to an extension, which decides itself who may use it"
                )
            else:
                yield found

    def _future(self, owner: str) -> Iterator[tuple[SecuredObject, str]]:
        grant = self._grant
        for creator in grant.created_by or (owner,):
            if creator in self._survey.users or creator == owner:
                yield SecuredObject(grant.kind, grant.database, grant.schema, creator=creator), creator
            else:
                self.missing.append(f"role {creator} is not there yet")


def _spelled(on: SecuredObject) -> str:
    """How a grant names an object: a function of PostgreSQL with its types, all else by its name."""
    return on.name or "" if on.arguments is None else _tidy(f"{on.name}({on.arguments})")


def _tidy(signature: str) -> str:
    return ", ".join(part.strip() for part in signature.split(","))


def _held(survey: Survey, name: str) -> Iterator[Privilege]:
    for database in survey.databases.values():
        for privilege in database.privileges:
            if privilege.grantee == name and database.owner != name:
                yield privilege
    for inside in survey.inside.values():
        for privilege in inside.privileges:
            if privilege.grantee == name and _owner(inside, privilege.on) != name:
                yield privilege


def _owner(inside: Inside, on: SecuredObject) -> str | None:
    return inside.schemas.get(on.schema or "") if on.kind is ObjectKind.SCHEMA and not on.creator else None


def _grants(
    survey: Survey, desired: DesiredUser, held: list[Privilege], wanted: Wanted, how: Granting
) -> Iterator[Step]:
    there: dict[tuple[SecuredObject, str], bool] = defaultdict(bool)
    for privilege in held:
        there[privilege.on, privilege.privilege] |= privilege.grantable
    lacking: dict[tuple[SecuredObject, str, bool], list[str]] = defaultdict(list)
    for (on, privilege), (owner, grantable) in wanted.items():
        if (on, privilege) not in there or (grantable and not there[on, privilege]):
            lacking[on, owner, grantable].append(privilege)
    for (on, owner, grantable), privileges in lacking.items():
        names = tuple(sorted(privileges))
        step = Grant(desired.name, on, names, how.acting(survey, on.database, owner), grantable)
        yield Step(step, Change("Granted", f"granted {', '.join(names)} on {on} to {desired.name}"))


def _revokes(
    survey: Survey, desired: DesiredUser, held: list[Privilege], wanted: Wanted, how: Granting
) -> Iterator[Step]:
    excess: dict[tuple[SecuredObject, str, bool], list[str]] = defaultdict(list)
    for privilege in held:
        declared = wanted.get((privilege.on, privilege.privilege))
        if declared is None or (privilege.grantable and not declared[1]):
            excess[privilege.on, privilege.grantor, declared is not None].append(privilege.privilege)
    for (on, grantor, only_option), privileges in sorted(excess.items(), key=str):
        names = tuple(sorted(privileges))
        step = Revoke(desired.name, on, names, how.acting(survey, on.database, grantor), only_option)
        what = f"the right to pass on {', '.join(names)}" if only_option else ", ".join(names)
        yield Step(step, Change("GrantRevoked", f"revoked {what} on {on} from {desired.name}"))
