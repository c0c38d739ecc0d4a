"""Terms in the status of a LeaderService."""

from __future__ import annotations

from steersman import Client, Conflict, MergePatch
from steersman.errors import SteersmanError

from leader_operator.api.v1.leaderservice import LeaderService

_ATTEMPTS = 5


class LeaderServiceChanged(Exception):
    """The LeaderService was replaced, or its terminationSeconds changed."""


class LeaderServiceTerms:
    """Keeps the highest term in ``status.term``.

    Args:
        client: client of the API server, without a cache.
        service: the LeaderService as the election began.
    """

    def __init__(self, client: Client, service: LeaderService) -> None:
        self._client = client
        self._service = service

    async def highest(self) -> int:
        """Read the highest term.

        Raises:
            LeaderServiceChanged: the election must begin again.
            NotFound: the LeaderService was deleted.
        """
        self._service = await self._read()
        return highest_term(self._service)

    async def record(self, term: int) -> bool:
        """Write ``status.term``. Return False if ``term`` is not above it."""
        service = self._service
        for _ in range(_ATTEMPTS):
            if term <= highest_term(service):
                return False
            version = service.metadata.resource_version
            body = {"metadata": {"resourceVersion": version}, "status": {"term": term}}
            try:
                await self._client.patch(LeaderService, service.key, MergePatch(body), subresource="status")
                return True
            except Conflict:
                # The operator wrote the status, or another candidate recorded a term.
                service = await self._read()
        raise SteersmanError(f"LeaderService {self._service.key} changes too often: term {term} is not recorded")

    async def _read(self) -> LeaderService:
        service = await self._client.get(LeaderService, self._service.key)
        before, after = self._service, service
        if after.metadata.uid != before.metadata.uid:
            raise LeaderServiceChanged("it was replaced")
        if after.spec.termination_seconds != before.spec.termination_seconds:
            raise LeaderServiceChanged("spec.terminationSeconds changed")
        return service


def highest_term(service: LeaderService) -> int:
    """Return the highest term of the service; 0 if there was none."""
    return max(service.status.term or 0, service.spec.min_term)
