"""Access control: users, their passwords and rules. Knows commands by their declarations alone."""

from verbena.kv.acl.registry import Acl, LogEntry
from verbena.kv.acl.user import User

__all__ = ["Acl", "LogEntry", "User"]
