"""How clients reach the engine other than by TCP: sessions and Valkey over RDMA.
May not depend on kv.cluster or kv.replication."""
