"""What tells two sets of images apart."""

import hashlib
import os

from cicf.data.domains import DomainDataset
from cicf.data.hashes import sha256_of
from cicf.data.images import ImageFiles


def fingerprint(data: DomainDataset) -> str:
    """Return a hash of names, labels, split, sizes and contents of all images."""
    found = hashlib.sha256()
    found.update(repr((data.classes, data.domains)).encode())
    for labels in (data.y, data.domain, data.part):
        if labels is not None:
            found.update(labels.numpy().tobytes())
    if isinstance(data.images, ImageFiles):
        for path in data.images.paths:
            found.update(os.fsencode(path.name) + b"\0" + str(path.stat().st_size).encode())
            found.update(bytes.fromhex(sha256_of(path)))
    else:
        found.update(data.images.numpy().tobytes())
    return found.hexdigest()[:16]
