"""A Kubernetes API server in memory, for tests: the same answers, no process, no socket, no waiting.

It is trusted as far as the same cases pass on it and on the real server, word for word.

Imitated
    - Create, get, list, update, the four kinds of patch, delete, delete of a collection, watch; dry runs.
    - Names and ``generateName``, UIDs, ``resourceVersion`` and optimistic concurrency, ``generation``, writes that
      change nothing, the status subresource, preconditions, finalizers, grace periods of running pods.
    - Server-side apply with ``managedFields``: ownership, conflicts, force, removal, associative lists and sets.
    - Scale, eviction under PodDisruptionBudgets (whose status a test sets, as nobody computes it), tokens of service
      accounts, TokenReview and SubjectAccessReview as a test decides, metadata alone, logs that a test writes.
    - Label and field selectors, pages, versions of lists, bookmarks, WatchList, 410 after ``compact``.
    - CustomResourceDefinitions: pruning, defaults, validation with ratcheting, CEL rules (see ``rules``), strict
      field validation, selectable fields, several versions that differ in nothing.
    - What the controller manager does about deletion: owners and dependents by all three policies, namespaces,
      definitions, claims in use. It happens within the request that causes it.
    - Built-in kinds by a table (see ``kinds``), with the defaults and refusals that operators meet (see ``defaults``,
      ``content``, ``immutability``).

Refused with 501
    - Other subresources (exec, attach, …), server-side apply to scale, conversion by webhook, CEL functions that the
      engine does not have.

Not imitated, and not noticed
    - Authentication and RBAC: every request is allowed. Admission webhooks and policies, quotas. Events expire never.
    - Schemas of built-in kinds: unknown fields are kept, and only some of the validation is done. Updates of them own
      some containers of fields that the real server does not list.
    - ``v1`` and ``events.k8s.io/v1`` Events are two collections here, one there.
    - ``managedFields`` cannot be written, and patches do not see them. Tables, protobuf, OpenAPI, and discovery
      beyond groups and resources. Type-checking and cost limits of CEL rules.
"""

from steersman.testing.apiserver.faults import matching
from steersman.testing.apiserver.server import InMemoryApiServer

__all__ = ["InMemoryApiServer", "matching"]
