"""Collections and algorithms on them. May not depend on the rest of verbena.kv."""
