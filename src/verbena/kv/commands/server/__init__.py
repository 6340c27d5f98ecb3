"""Commands on the server, its clients and its cluster."""
