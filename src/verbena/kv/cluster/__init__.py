"""The store as one node of a cluster: its view of the map, the gate before its commands, the moving of slots.
What a cluster is, without Redis, is in verbena.shards; this layer knows clients, keys and the engine.
May not depend on kv.client or kv.frontends."""

from verbena.kv.cluster.node import ClusterNode, ClusterSettings

__all__ = ["ClusterNode", "ClusterSettings"]
