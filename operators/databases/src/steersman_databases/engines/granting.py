"""The plan for what one user may do, the same for every engine: exactly what is declared, granted by name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from .actions import Grant, Revoke
from .desired import ALL, EACH, DesiredGrant, DesiredUser, ObjectKind
from .plan import Change, Plan, Step
from .survey import Inside, Privilege, SecuredObject, Survey

Vocabulary = Callable[[Survey], Mapping[ObjectKind, frozenset[str]]]
"""The privileges that a server knows, by the kind of object."""


@dataclass(frozen=True, slots=True)
class Granting:
    """How one engine's server grants.

    `acting` gives the role under which something of an owner is granted or revoked, `automatic` says that a
    privilege comes with something else and is not revoked, `spelled` how a grant names an object. With
    `option_apart` the right to pass on is a privilege by itself, for all that is held on an object.
    """

    vocabulary: Vocabulary
    acting: Callable[[Survey, str, str], str]
    automatic: Callable[[Survey, DesiredUser, Privilege], bool]
    spelled: Callable[[SecuredObject], str]
    option_apart: bool = False


def plan_grants(survey: Survey, desired: DesiredUser, how: Granting) -> Plan:
    """Grants what is declared and missing; with `desired.exact` also revokes what is not declared.

    What the server does not have at all is `missing`, too: all the rest is done.
    """
    wanted, missing = _wanted(survey, desired, how)
    held = list(_held(survey, desired.name))
    if not desired.exact:
        return Plan(tuple(_grants(survey, desired, held, wanted, how)), missing)
    # What somebody passed on to itself gives it nothing, and would keep it from losing by what it did.
    own = [one for one in held if one.grantor == desired.name]
    back = [step for _, step in _revokes(survey, desired, own, {}, how)]
    held = [one for one in held if one not in own]
    surplus = [one for one in held if _is_surplus(one, wanted) and not how.automatic(survey, desired, one)]
    # The rest is done: else whoever passes one privilege on would keep whatever comes after it.
    stays = _staying(surplus, held, _passed_on(survey, desired.name))
    missing += tuple(sorted({_told(one, others, wanted) for one, others in stays.items()}))
    surplus = [one for one in surplus if one not in stays]
    excess = {(one.on, one.privilege, one.grantor) for one in surplus if (one.on, one.privilege) not in wanted}
    # What is revoked on a table goes from its columns too: it is not there to be revoked again, but to be granted.
    lost = {one for one in held if one.on.column and (_whole(one.on), one.privilege, one.grantor) in excess}
    held = [one for one in held if one not in lost]
    narrowed = {(_whole(on), privilege) for on, privilege in wanted if on.column is not None}
    first: list[Step] = []
    last: list[Step] = []
    for revoke, step in _revokes(survey, desired, [one for one in surplus if one not in lost], wanted, how):
        (first if any((revoke.on, one) in narrowed for one in revoke.privileges) else last).append(step)
    return Plan((*back, *first, *_grants(survey, desired, held, wanted, how), *last), missing)


def _is_surplus(one: Privilege, wanted: Wanted) -> bool:
    declared = wanted.get((one.on, one.privilege))
    return declared is None or (one.grantable and not declared[1])


PassedOn = Mapping[tuple[SecuredObject, str], set[str]]
"""Object and privilege → to whom it was granted."""


def _passed_on(survey: Survey, name: str) -> PassedOn:
    """To whom a user granted what by its right to pass it on, which it cannot lose as long as they have it."""
    found: dict[tuple[SecuredObject, str], set[str]] = defaultdict(set)
    for state in (*survey.databases.values(), *survey.inside.values()):
        for one in state.privileges:
            if one.grantor == name != one.grantee:
                # Who may pass on a table's may pass on its columns'.
                for on in {one.on, _whole(one.on)}:
                    found[on, one.privilege].add(one.grantee or "everybody")
    return found


def _staying(surplus: list[Privilege], held: list[Privilege], passed_on: PassedOn) -> Mapping[Privilege, set[str]]:
    """What a user cannot lose, and because of whom: what is revoked on a table goes from its columns, too."""
    of_columns: dict[tuple[SecuredObject, str, str], list[Privilege]] = defaultdict(list)
    for one in held:
        if one.on.column is not None:
            of_columns[_whole(one.on), one.privilege, one.grantor].append(one)
    found: dict[Privilege, set[str]] = {}
    for one in surplus:
        goes = [one, *of_columns.get((one.on, one.privilege, one.grantor), ())]
        others = {name for it in goes if it.grantable for name in passed_on.get((it.on, it.privilege), ())}
        if others:
            found[one] = others
    of_one = [
        one for one in found if (one.on, one.privilege, one.grantor) not in of_columns and one.on.column is None
    ]
    twice = _had_twice(of_one, held, found)
    return {one: others for one, others in found.items() if one not in twice}


def _had_twice(ones: list[Privilege], held: list[Privilege], stays: Mapping[Privilege, set[str]]) -> set[Privilege]:
    """What a user has the right to pass on from another, too, so that nothing hangs on this one.

    Two who passed something on to each other would wait for each other for ever. What comes from those to whom it
    was passed on goes first.
    """
    found: set[Privilege] = set()
    for one in sorted(ones, key=lambda one: (one.grantor not in stays[one], one.grantor)):
        same = {it for it in held if (it.on, it.privilege) == (one.on, one.privilege) and it.grantable}
        if same - found - {one}:
            found.add(one)
    return found


def _told(one: Privilege, others: set[str], wanted: Wanted) -> str:
    what = f"the right to pass on {one.privilege}" if (one.on, one.privilege) in wanted else one.privilege
    names = ", ".join(sorted(others))
    return f"{what} on {one.on} stays with {one.grantee}, who passed it on to {names}: revoke that first"


def _whole(on: SecuredObject) -> SecuredObject:
    """The table of a column."""
    return replace(on, column=None)


Wanted = dict[tuple[SecuredObject, str], tuple[str, bool]]
"""Object and privilege → the object's owner, and whether it may be passed on."""


def _wanted(survey: Survey, desired: DesiredUser, how: Granting) -> tuple[Wanted, tuple[str, ...]]:
    wanted: Wanted = {}
    missing: list[str] = []
    for grant in desired.grants:
        found = _Found(survey, grant, how.spelled)
        privileges = _expanded(survey, grant, how.vocabulary(survey), found.missing)
        for on, owner in found.objects():
            if owner == desired.name:
                continue
            if grant.with_grant_option and how.option_apart:
                wanted[_whole(on), GRANT_OPTION] = owner, False
            for privilege in privileges:
                _, grantable = wanted.get((on, privilege), (owner, False))
                wanted[on, privilege] = owner, grantable or (grant.with_grant_option and not how.option_apart)
        missing += found.missing
    return wanted, tuple(dict.fromkeys(missing))


def _expanded(
    survey: Survey, grant: DesiredGrant, vocabulary: Mapping[ObjectKind, frozenset[str]], missing: list[str]
) -> frozenset[str]:
    known = vocabulary.get(grant.kind, frozenset[str]())
    if grant.columns:
        known &= ON_COLUMNS
    given = {_SYNONYMS.get(privilege, privilege) for privilege in grant.privileges}
    unknown = given - known - {ALL}
    if unknown or not known:
        named = " and ".join(sorted(unknown)) or ALL
        version = ".".join(map(str, survey.version))
        place = "column" if grant.columns else grant.kind.value
        missing.append(f"{survey.product} {version} has no {named} on a {place}")
    return known if ALL in given else known & given


ON_COLUMNS = frozenset({"SELECT", "INSERT", "UPDATE", "REFERENCES"})
"""What every engine has for single columns."""

GRANT_OPTION = "GRANT OPTION"
"""The right to pass on, where it is a privilege by itself."""

_SYNONYMS = {"TEMP": "TEMPORARY", "ALL PRIVILEGES": ALL}


class _Found:
    """The objects that a grant names, and what of it is not there."""

    def __init__(self, survey: Survey, grant: DesiredGrant, spelled: Callable[[SecuredObject], str]) -> None:
        self._survey = survey
        self._grant = grant
        self._spelled = spelled
        self.missing: list[str] = []

    def objects(self) -> Iterator[tuple[SecuredObject, str]]:
        """Each object with its owner."""
        inside = self._survey.inside.get(self._grant.database, Inside())
        for on, owner in self._declared():
            if owner in inside.strangers:
                self.missing.append(
                    f"{on} belongs to {owner}, as whom the operator may not grant: give it to another"
                )
            else:
                yield on, owner

    def _declared(self) -> Iterator[tuple[SecuredObject, str]]:
        grant = self._grant
        if grant.kind is ObjectKind.SERVER:
            yield SecuredObject(ObjectKind.SERVER, grant.database), ""
            return
        database = self._survey.databases.get(grant.database)
        if database is None or not database.exists:
            self.missing.append(f"database {grant.database} is not there yet")
            return
        if grant.kind is ObjectKind.DATABASE:
            yield SecuredObject(ObjectKind.DATABASE, grant.database), database.owner
            return
        inside = self._survey.inside.get(grant.database)
        if inside is None:
            why = self._survey.unseen.get(grant.database)
            reason = f": {why}" if why else ""
            self.missing.append(f"database {grant.database} does not let the operator look inside{reason}")
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
        there: dict[str, list[tuple[SecuredObject, str]]] = defaultdict(list)
        for on, owner in inside.objects.items():
            if on.kind is grant.kind and on.schema == grant.schema and on.column is None:
                there[self._spelled(on)].append((on, owner))
        if EACH in grant.names:
            yield from ((on, owner) for found in there.values() for on, owner in found if owner)
            return
        for name in grant.names:
            found = there.get(tidy(name) if grant.kind is ObjectKind.FUNCTION else name, [])
            if not found:
                place = ".".join(part for part in (grant.database, grant.schema, name) if part)
                self.missing.append(f"{grant.kind.value} {place} is not there yet{_meant(name, there)}")
            for on, owner in found:
                if owner:
                    yield from self._columns(inside, on, owner) if grant.columns else [(on, owner)]
                else:
                    self.missing.append(f"{on} belongs to an extension, which decides itself who may use it")

    def _columns(self, inside: Inside, table: SecuredObject, owner: str) -> Iterator[tuple[SecuredObject, str]]:
        for name in self._grant.columns:
            column = replace(table, column=name)
            if column in inside.objects:
                yield column, owner
            else:
                self.missing.append(f"{column} is not there yet")

    def _future(self, owner: str) -> Iterator[tuple[SecuredObject, str]]:
        grant = self._grant
        for creator in grant.created_by or (owner,):
            if creator in self._survey.users or creator == owner:
                yield SecuredObject(grant.kind, grant.database, grant.schema, creator=creator), creator
            else:
                self.missing.append(f"role {creator} is not there yet")


def tidy(signature: str) -> str:
    """A function with its types, as a grant names it, with the spaces that the server writes."""
    return ", ".join(part.strip() for part in signature.split(","))


def _held(survey: Survey, name: str) -> Iterator[Privilege]:
    for database in survey.databases.values():
        for privilege in database.privileges:
            if privilege.grantee == name != database.owner and not privilege.namesake:
                yield privilege
    for inside in survey.inside.values():
        for privilege in inside.privileges:
            if privilege.grantee == name != _owner(inside, privilege.on) and not privilege.namesake:
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
        change = Change("Granted", f"granted {', '.join(names)} on {on} to {desired.name}")
        yield Step(step, change, alone=True)


def _revokes(
    survey: Survey, desired: DesiredUser, surplus: list[Privilege], wanted: Wanted, how: Granting
) -> Iterator[tuple[Revoke, Step]]:
    excess: dict[tuple[SecuredObject, str, bool], list[str]] = defaultdict(list)
    for one in surplus:
        excess[one.on, one.grantor, (one.on, one.privilege) in wanted].append(one.privilege)
    for (on, grantor, only_option), privileges in sorted(excess.items(), key=str):
        names = tuple(sorted(privileges))
        revoke = Revoke(desired.name, on, names, how.acting(survey, on.database, grantor), only_option)
        what = f"the right to pass on {', '.join(names)}" if only_option else ", ".join(names)
        change = Change("GrantRevoked", f"revoked {what} on {on} from {desired.name}")
        yield revoke, Step(revoke, change, alone=True, takes=True)


def _meant(name: str, there: Iterable[str]) -> str:
    """Routines of PostgreSQL that are called so: one is named with the types of its arguments."""
    alike = sorted(spelled for spelled in there if spelled.startswith(f"{name}("))
    return f"; name it with the types of its arguments, as in {alike[0]}" if alike else ""
