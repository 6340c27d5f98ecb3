"""The parts of `verbena cli`: prompt, output formats, monitoring modes."""
