"""Registry nodes: fetch missing content from peers with RDMA WRITE, or from upstream registries.
Provides `Nodes` (nodes.py), the registry's `Source`, which also replicates pushes; pieces and leases do no
I/O.
Depends on the registry's storage and on transport; never on the HTTP server. This file imports nothing."""
