"""Integrations of other libraries: Dask's messages, fsspec's file systems, tensors.
Provides dask (a comm backend), files and file_server (a file system), tensors (DLPack).
May depend on verbena.transport and below only; each library is imported only by its own module."""
