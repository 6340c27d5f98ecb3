"""Clients of the store: blocking and asyncio clients over sessions, pools for redis-py and valkey-py.
May not depend on kv.server."""
