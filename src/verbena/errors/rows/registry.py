"""The container registry."""

from __future__ import annotations

from verbena.errors.classes import BusyError, UnavailableError
from verbena.errors.explanation import Explanation

ROWS = (
    Explanation(
        "registry_folder",
        UnavailableError,
        what="the registry's folder cannot be used",
        causes=(
            "this user may not create, read or write the folder",
            "registry.db in the folder is damaged, is not a database, or was written by a newer version",
        ),
        remedy="check the path (`registry.folder`) and its owner; `verbena registry check` reports damage"
        " inside the folder",
    ),
    Explanation(
        "registry_locked",
        BusyError,
        what="another process serves the registry's folder",
        causes=("another registry server with the same folder is running",),
        remedy="give each server its own folder (`registry.folder`), or stop the other server first",
    ),
    Explanation(
        "registry_missing",
        UnavailableError,
        what="a package that the registry's HTTP server needs is not installed",
        causes=("Verbena was installed without the registry extra",),
        remedy="run `pip install '.[registry]'` in Verbena's source folder, or `pip install"
        " 'aiohttp>=3.11,<4' 'bcrypt>=4.1'` beside an installed wheel",
    ),
    Explanation(
        "registry_bucket",
        UnavailableError,
        what="the bucket for the registry's blobs cannot be used",
        causes=(
            "the object store is unreachable, or has no such bucket",
            "the access key is wrong, or may not read, write, list and delete in the bucket",
            "another registry uses the same prefix in the bucket",
            "the folder's blobs are in a bucket, and `registry.s3.bucket` is empty",
        ),
        remedy="check endpoint, bucket, region, access_key and secret_key in `[registry.s3]`, and give each"
        " registry its own `registry.s3.prefix`",
    ),
    Explanation(
        "s3_missing",
        UnavailableError,
        what="a package that the registry needs for a bucket is not installed",
        causes=(
            "Verbena was installed without the s3 extra",
            "`registry.s3.profile` is set, and the package boto3, which reads profiles, is not installed",
        ),
        remedy="run `pip install '.[s3]'` in Verbena's source folder, or `pip install 'obstore>=0.8'` beside"
        " an installed wheel; for profiles run `pip install boto3` too",
    ),
)
