"""The store on disk: the data directory, the log and snapshots, serialized values."""
