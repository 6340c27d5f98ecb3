"""Recognises failures in text, and explains names that are not codes of Verbena.
May depend on verbena.errors only."""
