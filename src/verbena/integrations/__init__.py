"""Other people's programs on Verbena's wires: Dask's messages, fsspec's files, tensors of other libraries.
Gives dask (a comm backend), files and file_server (a file system), tensors (DLPack).
May depend on verbena.transport and below only; each library is imported by its own module alone."""
