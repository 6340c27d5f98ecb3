"""Shards: who owns which slots, and how slots move between nodes while they are in use.
Gives slots, the cluster map and its stores, the envelope, the migration's states and its checkpoints.
Knows nothing of Redis: what a shard holds is bytes to it. May not depend on kv or registry."""
