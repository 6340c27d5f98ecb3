"""The store as `verbena serve` runs it, and its files as `verbena kv` checks and repairs them.
May import any layer; a command imports it when it runs."""
