"""Programs that fork, for tests/programs."""
