"""Slot moves: a source node copies the keys of some slots to a target, and the cluster map hands the slots
over. Gives the source, the target, the base copy, checkpoints, and the manager of a node's moves. May depend
on verbena.shards and kv.replication; not on kv.cluster, which passes its parts in."""
