"""Access control: users, their passwords and rules. Knows commands by their declarations alone.
May not depend on kv.cluster, kv.replication or sessions."""

from verbena.kv.acl.registry import Acl, LogEntry
from verbena.kv.acl.user import User

__all__ = ["Acl", "LogEntry", "User"]
