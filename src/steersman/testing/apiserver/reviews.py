"""Questions that are posted and not stored: who holds a token, and who may do what.

Source: ``authentication.k8s.io/v1`` and ``authorization.k8s.io/v1`` of the API reference.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from steersman.client.transport import HttpRequest
from steersman.testing.apiserver.bodies import decode_options
from steersman.testing.apiserver.storage import Stored
from steersman.testing.apiserver.values import JsonObject, map_at

_ACCESS = ("subjectaccessreviews", "selfsubjectaccessreviews", "localsubjectaccessreviews")


def _everything(_: JsonObject) -> bool:
    return True


@dataclass(slots=True)
class Reviews:
    """What reviews are answered; tests may change it.

    Attributes:
        users: by token, the ``UserInfo`` in wire form of who holds it. Tokens that the server gave out for service
            accounts are known without it.
        allows: whether the ``spec`` of a SubjectAccessReview, in wire form, is allowed. At first everything is.
        tokens: the service account of each token that the server gave out.
    """

    tokens: dict[str, Stored]
    users: dict[str, JsonObject] = field(default_factory=dict[str, JsonObject])
    allows: Callable[[JsonObject], bool] = _everything

    def answer(self, request: HttpRequest) -> bytes | None:
        """The answer to a review; None where ``request`` is none."""
        if request.method != "POST":
            return None
        match request.path.strip("/").split("/"):
            case ["apis", "authentication.k8s.io", "v1", "tokenreviews"]:
                decide = self._authenticated
            case ["apis", "authorization.k8s.io", "v1", *_, plural] if plural in _ACCESS:
                decide = self._authorized
            case _:
                return None
        review = decode_options(request)
        return msgspec.json.encode({**review, "metadata": {}, "status": decide(map_at(review, "spec"))})

    def _authenticated(self, spec: JsonObject) -> JsonObject:
        user = self._user(spec.get("token", ""))
        if user is None:
            return {"user": {}, "error": "invalid bearer token"}
        audiences: list[Any] = spec.get("audiences") or []
        return {"authenticated": True, "user": user, **({"audiences": audiences} if audiences else {})}

    def _user(self, token: str) -> JsonObject | None:
        account = self.tokens.get(token)
        if account is None:
            return self.users.get(token)
        namespace = account.key.namespace
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
        name = f"system:serviceaccount:{namespace}:{account.key.name}"
        return {"username": name, "uid": account.uid, "groups": groups}

    def _authorized(self, spec: JsonObject) -> JsonObject:
        return {"allowed": self.allows(spec)}
