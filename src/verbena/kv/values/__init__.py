"""Collections and the algorithms on them. Depends on nothing else in verbena.kv."""
