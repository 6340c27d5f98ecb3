"""The key-value store: a Redis-compatible server whose strings remote clients can read one-sided."""
