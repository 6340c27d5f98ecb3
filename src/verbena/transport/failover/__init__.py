"""How a session gets its links and replaces lost ones."""
