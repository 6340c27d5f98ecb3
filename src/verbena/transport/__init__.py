"""Sessions between nodes: found, authenticated and kept up over whatever wire there is.
Gives the hello, link tokens, TLS contexts and the failover policy.
May depend on verbena.verbs and below only."""
