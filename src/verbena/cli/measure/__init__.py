"""Measurements between two processes, for `verbena bench`, `verbena demo` and bench/.
Provides a peer process, probes for subjects and raw baselines, statistics and plots.
Depends on verbs and the native loops; only kv_bench defines a command."""
