"""How two nodes authenticate and agree on wires: the hello, TLS, link tokens."""
