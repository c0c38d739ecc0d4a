"""Whether what two looks at a server found concerns an object: no longer as it declares, or gone.

What was seen is compared first, which costs little; a plan is made only where that has changed.
"""

from __future__ import annotations

from steersman_databases.engines.desired import DesiredDatabase, DesiredUser
from steersman_databases.engines.errors import EngineError
from steersman_databases.engines.port import Contents
from steersman_databases.engines.settle import planned
from steersman_databases.engines.survey import Inside, OtherPrivilege, Privilege, Scope, Survey

Desired = DesiredDatabase | DesiredUser


def with_seconds(contents: Contents, scope: Scope) -> frozenset[str]:
    """Whom a scope names, and their second credentials."""
    return scope.users.union(map(contents.second_username, scope.users))


def stood_in(survey: Survey, names: frozenset[str]) -> set[str]:
    """The databases in which they have something, declared or not."""
    return {database for name in names & survey.users.keys() for database in survey.users[name].stands_in}


def moved_between(former: Survey, latest: Survey) -> frozenset[str]:
    """Whose privileges are others than before, in whatever database: once a look, however many objects there are.

    Where all privileges are what owning is, so is that.
    """
    changed: set[Privilege | OtherPrivilege] = set()
    nothing = Inside()
    for name in former.inside.keys() | latest.inside.keys():
        changed |= former.inside.get(name, nothing).others ^ latest.inside.get(name, nothing).others
    for before, after in ((former.databases, latest.databases), (former.inside, latest.inside)):
        for name in before.keys() | after.keys():
            changed |= before.get(name, nothing).privileges ^ after.get(name, nothing).privileges
    owners = {(name, state.marked_owner) for name, state in former.databases.items()}
    owners ^= {(name, state.marked_owner) for name, state in latest.databases.items()}
    return frozenset({name for one in changed for name in (one.grantee, one.grantor)} | {name for _, name in owners})


def concerns(
    contents: Contents, desired: tuple[Desired, ...], former: Survey | None, latest: Survey, moved: frozenset[str]
) -> bool:
    """Whether an object is to be reconciled, since what it wants is not what is there.

    Args:
        contents: of the server.
        desired: what it wants.
        former: what was there before; None where that says nothing.
        latest: what is there.
        moved: those whose privileges are others than before.
    """
    for each in desired:
        scope = Scope.of([each])
        names = with_seconds(contents, scope)
        if former is not None:
            if _unseen(former, scope) != _unseen(latest, scope):
                return True
            if not names & moved and _seen(former, scope, names) == _seen(latest, scope, names):
                continue
        try:
            plan = planned(contents, latest, each)
            if plan or (plan.missing and (former is None or plan.missing != planned(contents, former, each).missing)):
                return True
        except EngineError:
            return True
    return False


def _seen(survey: Survey, scope: Scope, names: frozenset[str]) -> tuple[object, ...]:
    """What an object's plan is made of, privileges aside."""
    inside: list[Inside | None] = [survey.inside.get(database) for database in sorted(scope.inside)]
    users = [(survey.users.get(name), survey.narrower.get(name)) for name in sorted(names)]
    wrong = {name for name in names if not survey.opened.get(name, True)}
    return (users, wrong, [survey.databases.get(name) for name in sorted(scope.databases)], inside)


def _unseen(survey: Survey, scope: Scope) -> list[str | None]:
    return [survey.unseen.get(database) for database in sorted(scope.inside)]
