"""The benchmarks: one program per question, in the folder of the layer that it measures.
`python -m bench.kv.replication` answers one question; `python -m bench.run` answers all and reports.
Depends on verbena, on the programs it compares with, and on tests/support; nothing of it is in the wheel."""
