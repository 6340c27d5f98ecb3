"""The store on disk: the data directory, the log and snapshots, serialized values.
May not depend on kv.cluster or kv.replication."""
