"""Authentication of two nodes and agreement on wires: the handshake (hello), TLS, link tokens.
May depend on verbena.errors only."""
