"""The digest of an image: of what every build writes anew, so that an image of any size is told by two short reads.

Its length counts; its first 64 KiB, where a SIF has the identifier and the times of the build, the table of its parts,
its definition and its labels; and its last 64 KiB, where the tables of the file system end.

It sees every build, replacement, cut, and whatever `siftool`, `singularity sign` or a new file system writes. It does
not see content that was changed in place at the same length: a damaged disk, or somebody who hides it. The name and the
times of the file do not count, so that a copy has the same digest.
"""

from __future__ import annotations

import struct

from lumisite.machine.tree import ByteSource

_PART_BYTES = 64 * 1024


def digest_of(source: ByteSource) -> str:
    """Return `header:` and 64 hexadecimal digits (SHA-256); raises a `LumisiteError`."""
    import hashlib  # late: `binds` and `env` read an image without it

    known = hashlib.sha256(struct.pack("<Q", source.size))
    known.update(source.read(0, _PART_BYTES))
    known.update(source.read(max(0, source.size - _PART_BYTES), _PART_BYTES))
    return f"header:{known.hexdigest()}"
