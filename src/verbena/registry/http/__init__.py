"""The registry over HTTP: OCI distribution v1.1 on aiohttp. Provides `Server` (server.py).
Depends on the registry's service. aiohttp is an optional package, so import this folder only on demand.
May not depend on registry.nodes or registry.web."""
