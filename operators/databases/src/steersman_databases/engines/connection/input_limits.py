"""Limits of everything that tenants, servers and neighbours send to the operator.

One event loop serves all namespaces. Each input therefore has a limit that is checked before it is parsed or hashed,
and that bounds time and memory. The gate in `tests/unit/test_input_limits.py` has a case for each entry of the table.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

KIB, MIB = 1024, 1024 * 1024

MAX_RSA_BITS = 4096
MAX_KEY_CHARACTERS = 16 * KIB
MAX_CERTIFICATE_CHARACTERS = 32 * KIB
MAX_BUNDLE_CHARACTERS = 512 * KIB
"""The authorities of Mozilla need half of it."""
MAX_CREDENTIAL_BYTES = 1024
MAX_POSTGRESQL_PASSWORD_BYTES = 1024
MAX_MYSQL_PASSWORD_BYTES = 256
MAX_SCRAM_ITERATIONS = 99_999
MAX_SHA2_ROUNDS = 50_000
"""A planted verifier with more rounds could occupy the operator for minutes."""
MAX_STORE_ENTRY_BYTES = 64 * KIB
MAX_QUERIES_CHARACTERS = 16 * KIB
MAX_QUERIES = 50
MAX_UNOWNED_BYTES = 16 * KIB
MAX_RECEIVED_BYTES = 32 * MIB
"""Several times the description of 100,000 tables."""
MAX_OBJECTS = 20_000
"""Tables, sequences and functions in schemas with grants on all objects. Each role with CREATE can add some."""
MAX_REVIEWED_SECRETS = 128
"""More than the schemas allow. A forged review does not go through the schema."""

Controller = Literal["tenant", "server", "neighbour"]


class InputLimit(NamedTuple):
    """The limit of one input.

    Attributes:
        controlled_by: tenants write objects and Secrets, servers respond, and neighbours reach a port.
        limit: largest value that is accepted.
        unit: unit of the limit.
    """

    controlled_by: Controller
    limit: int
    unit: str


INPUT_LIMITS: dict[str, InputLimit] = {
    "RSA key": InputLimit("tenant", MAX_RSA_BITS, "bits"),
    "private key": InputLimit("tenant", MAX_KEY_CHARACTERS, "characters"),
    "certificate": InputLimit("tenant", MAX_CERTIFICATE_CHARACTERS, "characters"),
    "CA bundle": InputLimit("tenant", MAX_BUNDLE_CHARACTERS, "characters"),
    "password on PostgreSQL": InputLimit("tenant", MAX_POSTGRESQL_PASSWORD_BYTES, "bytes"),
    "password on MySQL": InputLimit("tenant", MAX_MYSQL_PASSWORD_BYTES, "bytes"),
    "iterations of a SCRAM verifier": InputLimit("server", MAX_SCRAM_ITERATIONS, "iterations"),
    "rounds of a caching_sha2_password verifier": InputLimit("server", MAX_SHA2_ROUNDS, "rounds"),
    "key of an object store's Secret": InputLimit("tenant", MAX_STORE_ENTRY_BYTES, "bytes"),
    "queries of one ConfigMap key": InputLimit("tenant", MAX_QUERIES_CHARACTERS, "characters"),
    "labelled object without an owner": InputLimit("tenant", MAX_UNOWNED_BYTES, "bytes"),
    "result of one statement": InputLimit("server", MAX_RECEIVED_BYTES, "bytes"),
    "objects in the schemas of a grant": InputLimit("server", MAX_OBJECTS, "objects"),
    "Secrets in one admission review": InputLimit("neighbour", MAX_REVIEWED_SECRETS, "Secrets"),
}
"""The table. Fields of objects have further limits in their CRD, and HTTP requests those of the framework."""
