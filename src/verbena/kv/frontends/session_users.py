"""The users as which streams of sessions begin, by the principal of their session (kv.session_users)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from verbena.transport import Principal


@dataclass(frozen=True)
class SessionUsers:
    """`by_principal`: names of users by a fact in the form of `Principal.names`."""

    by_principal: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> SessionUsers:
        """Parses the value of kv.session_users, which the configuration has checked."""
        pairs = [pair.strip().rpartition("=") for pair in text.split(",") if pair.strip()]
        return cls({principal: user for principal, _, user in pairs})

    def user_of(self, principal: Principal) -> str | None:
        """Returns the name of the user of the strongest proved fact that has one; None: no fact has one."""
        found = (self.by_principal[name] for name in principal.names if name in self.by_principal)
        return next(found, None)
