"""Replication: a replica receives a base copy of its primary's keys, then the records of its log.
Gives both ends of the link, REPLICAOF and INFO replication; native code moves the bytes.
May not depend on kv.cluster."""
