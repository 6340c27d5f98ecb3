"""The blocking form of sessions and listeners, for threads without an event loop; public as verbena.sync.
May not depend on verbena.sync or above."""
