"""Hashes of files, each read once for as long as it does not change."""

import hashlib
from functools import lru_cache
from pathlib import Path

MOST = 1 << 18
"""How many hashes are remembered."""


def sha256_of(path: Path) -> str:
    """Return the hash of a file's content."""
    found = path.stat()
    return _sha256(path, found.st_size, found.st_mtime_ns)


@lru_cache(maxsize=MOST)
def _sha256(path: Path, size: int, changed: int) -> str:
    # A data set's files are compared with their manifest, and then go into its fingerprint.
    del size, changed
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
