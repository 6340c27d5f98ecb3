"""The identity of a request: a user or anonymous, and the grants of its bearer token if it has one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from verbena.registry.access.rules import Policy


@dataclass(frozen=True)
class Identity:
    user: str
    policy: Policy
    granted: Mapping[str, frozenset[str]] | None = None
    """The actions that the token grants, by repository; None for a request without a token."""

    def may(self, action: str, repository: str) -> bool:
        if self.granted is not None and action not in self.granted.get(repository, ()):
            return False
        return self.policy.allows(self.user, action, repository)
