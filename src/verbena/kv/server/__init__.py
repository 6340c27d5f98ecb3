"""The server process: clients, parameters, INFO, pub/sub, tracking and limits.
May not depend on kv.client or kv.migration."""
