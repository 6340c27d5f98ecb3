"""What all commands share for their output: colour, errors as text or JSON, one JSON document.
May import verbena.errors only, and no native code."""
