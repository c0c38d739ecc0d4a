"""Dry run of an import: its problems and the accounts. It only reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..jobs import JobFields, JobRefused, Result
from ..paths import InstancePaths
from .import_problem import ImportProblem, names_document
from .processes import ClientFailed
from .server import Login, ServerAddress, administrator_login, read_server

_MAX_EXTENSIONS = 64
_STORAGE_ENGINES = ("Any", "InnoDB")
_MAX_BYTES = 1 << 60


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredDatabase:
    """The new database as its manifest declares it.

    Args:
        encoding: of PostgreSQL.
        extensions: that the operator creates.
        storage_bytes: size of the volume; 0 if it is unknown.
        is_group: True for a server with Group Replication.
    """

    encoding: str
    extensions: frozenset[str]
    storage_bytes: int
    is_group: bool

    @classmethod
    def parse(cls, job: JobFields) -> DeclaredDatabase:
        """Validate the member ``declared``. Raises JobRefused."""
        fields = job.part("declared") or JobFields({})
        return cls(
            encoding=fields.text("encoding", "UTF8"),
            extensions=frozenset(each.text("name") for each in fields.parts("extensions", _MAX_EXTENSIONS)),
            storage_bytes=fields.number("storage_bytes", 0, _MAX_BYTES, 0),
            is_group=fields.choice("storage_engines", _STORAGE_ENGINES, "Any") == "InnoDB",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """Result of a check.

    Args:
        problems: without their correction, the import is refused.
        left_out: names of objects that an import leaves out, by kind.
        notes: sentences.
        accounts: members of the report about accounts.
    """

    source_version: str
    source_bytes: int
    target_version: str
    problems: Iterable[ImportProblem]
    left_out: Mapping[str, Sequence[str]]
    notes: Sequence[str]
    accounts: Mapping[str, object]

    def result(self) -> Result:
        """Return the result of the Job."""
        return {
            "check": {
                "source": {"version": self.source_version, "sizeBytes": self.source_bytes},
                "target": {"version": self.target_version},
                "problems": [each.document() for each in self.problems],
                "leftOut": [
                    {"kind": kind, **names_document(names)} for kind, names in self.left_out.items() if names
                ],
                "notes": list(self.notes),
                **self.accounts,
            }
        }


def target_server(job: JobFields, paths: InstancePaths) -> tuple[ServerAddress, Login] | None:
    """Return the existing server of the new database.

    None if the server will have the image of this Job.

    Raises:
        JobRefused: the Secret of its administrator is incomplete.
    """
    if job.part("server") is None:
        return None
    server = read_server(job, paths.server)
    login = administrator_login(server)
    if login is None:
        raise JobRefused("InvalidSecret", "The Secret of spec.serverRef.administrator has no user name or password.")
    return server, login


def unreachable_target(error: ClientFailed) -> JobRefused:
    """Return the failure of a target that cannot be read."""
    return JobRefused("ServerUnreachable", f"The new server cannot be read: {error}. Check spec.serverRef.")


def room_notes(name: str, size: int, declared: DeclaredDatabase) -> Iterator[str]:
    """Yield a note about a volume that is smaller than the source."""
    room = declared.storage_bytes
    if 0 < room < size:
        yield (
            f"{name} has {size >> 20} MiB, and the volume of the new server {room >> 20} MiB. Set a larger"
            " storageSize: indexes and logs need room, too"
        )


def read_optional(read: Callable[[], Mapping[str, object]], user: str) -> tuple[Mapping[str, object], list[str]]:
    """Return the accounts, or a note if they are hidden."""
    try:
        return read(), []
    except ClientFailed as error:
        return {"accounts": []}, [f"The source does not show its accounts to {user}: {error}"]
