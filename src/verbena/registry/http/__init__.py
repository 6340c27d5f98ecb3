"""The registry over HTTP: OCI distribution v1.1 on aiohttp. Gives `Server` (server.py).
Depends on the registry's service; aiohttp is an optional package, so nothing outside this folder imports
it."""
