"""Attackers, and the pages about what they can do."""
