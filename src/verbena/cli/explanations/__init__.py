"""Recognises failures in text and explains names that are not Verbena's own."""
