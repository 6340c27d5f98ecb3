"""Registry nodes: what is missing here comes from peers by RDMA WRITE, or from upstream registries.
Gives `Nodes` (nodes.py), the registry's `Source` and its replication; pieces, plans and leases without I/O.
Depends on the registry's storage and on transport; never on HTTP. This file stays empty."""
