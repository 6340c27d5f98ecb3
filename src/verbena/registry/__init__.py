"""The container registry: OCI distribution over one content-addressed store, without HTTP (that is `http/`).
Gives `Registry` (service.py) and what it is made of: blobs in a folder, everything else in SQLite.
Depends on transport, config and errors; never on kv. This file stays empty: start times matter."""
