"""The container registry: the OCI distribution API over one content-addressed store; HTTP is in `http/`.
Provides `Registry` (service.py): blobs are files in a folder or objects in a bucket, metadata is in SQLite.
Depends on transport, config and errors; never on kv. This file imports nothing, to keep start-up fast."""
