"""Replication: replicas that follow a primary's log, by a base copy and the records after it.

Gives the link of either side, REPLICAOF and what INFO tells of it. Bytes move in native code; what is here
sets up. It may not depend on the cluster.
"""
