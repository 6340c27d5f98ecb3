"""Reads and writes files of `verbena file-node DIR --writable` through fsspec.  python files.py [URL]"""

import sys

import fsspec
import numpy

url = sys.argv[1] if len(sys.argv) > 1 else "verbena://127.0.0.1:7471"

with fsspec.open(f"{url}/numbers.npy", "wb") as file:  # appears atomically when it is closed
    numpy.save(file, numpy.arange(1_000_000))

with fsspec.open(f"{url}/numbers.npy", "rb") as file:
    print("sum", numpy.load(file).sum())

fs, _ = fsspec.core.url_to_fs(url)
print("last bytes", numpy.frombuffer(fs.cat_file("numbers.npy", start=-16), dtype="i8"))
print("files", fs.ls("", detail=False), "over", fs.session.wire)
fs.close()
