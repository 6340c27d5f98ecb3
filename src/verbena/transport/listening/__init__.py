"""The server side of sessions: binds the port, accepts handshakes and links, serves built-in methods.
Provides Listener. May depend on the rest of verbena.transport."""
