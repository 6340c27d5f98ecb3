"""Who asks: a user, nobody in particular, or the bearer of a token that says what it is for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from verbena.registry.access.rules import Policy


@dataclass(frozen=True)
class Identity:
    user: str
    policy: Policy
    granted: Mapping[str, frozenset[str]] | None = None
    """What a token is for, by repository; None if there is no token."""

    def may(self, action: str, repository: str) -> bool:
        if self.granted is not None and action not in self.granted.get(repository, ()):
            return False
        return self.policy.allows(self.user, action, repository)
