"""Memory of sessions: exposed regions, views of a program's buffers, placement on NUMA nodes.
May depend on verbena.verbs and below only."""
