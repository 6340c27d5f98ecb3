"""The web page: repositories, tags, layers, locations of blobs, nodes and transfers. Provides `add_pages()`.
Depends on the registry's HTTP server and nodes. The files in static/ are served as they are: there is no
build step, and nothing is loaded from other hosts.
Only registry/program.py may depend on it."""
