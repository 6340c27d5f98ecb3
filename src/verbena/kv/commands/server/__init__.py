"""Commands on the server, its clients and its cluster.
May not depend on kv.client or kv.frontends."""
