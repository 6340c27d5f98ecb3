"""The server process: clients, parameters, INFO, pub/sub, tracking and limits."""
