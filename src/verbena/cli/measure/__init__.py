"""Measuring between two processes: `verbena bench`, `verbena demo` and bench/run.py are made of this.
Gives a peer process, probes for what is measured and for the raw bounds beside it, statistics and plots.
Depends on verbs and the native loops; knows no command line."""
