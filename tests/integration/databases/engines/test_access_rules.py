"""What we say of users' lines of pg_hba.conf, and what the server says of the same."""

from __future__ import annotations

from pathlib import Path

from access_rules import TAKEN, WRONG
from postgresql_server import PostgreSQLServer

# A line that runs on makes another one of the next, and is therefore looked at by itself: by us alone.
LINES = (*TAKEN, *(line for line in WRONG if not line.endswith("\\")))


def test_what_we_take_the_server_takes_and_what_we_refuse_it_refuses(postgresql: PostgreSQLServer) -> None:
    ((name,),) = postgresql.administer("SHOW hba_file")
    file = Path(name)
    former = file.read_text()
    try:
        # Nothing is loaded: the view reads the file as it is.
        file.write_text("".join(f"{line}\n" for line in LINES))
        found = postgresql.administer("SELECT line_number, error FROM pg_hba_file_rules WHERE error IS NOT NULL")
    finally:
        file.write_text(former)
    refused: set[str] = {LINES[number - 1] for number, _ in found}
    assert refused == set(LINES) - set(TAKEN), found
