"""Commands on keys and values.
May not depend on kv.cluster, kv.replication or sessions."""
