"""The checks of `verbena doctor`, one theme per file.
Each function returns diagnoses; the system folders that it reads are parameters.
Depends on verbs, transport, config and errors; parses no arguments."""
