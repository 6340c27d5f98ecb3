"""The parts of `verbena cli`: prompt, output formats, monitoring modes.
May depend on verbena.kv, not on another service."""
