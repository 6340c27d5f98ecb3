"""Shards: which node owns which slots, and the states of moving slots between nodes while they are in use.
Gives slots, the cluster map and its stores, the message envelope, the states of a migration, failure
detection. Independent of Redis: the content of a shard is bytes here. May not depend on kv or registry."""
