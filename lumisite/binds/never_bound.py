"""Which libraries of the host are never bound into a container, whatever an image lacks."""

from __future__ import annotations

import posixpath
import re

#: The C library and GCC's run time. Their parts must fit each other and the loader, and a process has one of each.
_NEVER_BOUND = re.compile(
    r"ld(-linux[-\w]*|64)\.so\.\d+|"
    r"lib(c|m|mvec|pthread|dl|rt|resolv|util|anl|nsl|nss_(files|dns|compat|hesiod)|thread_db|BrokenLocale)\.so\.\d+|"
    r"lib(gcc_s|stdc\+\+)\.so\.\d+"
)


def is_never_bound(name: str) -> bool:
    """Return whether a library is part of the C library or of GCC's run time, which an image must bring itself.

    >>> [is_never_bound(name) for name in ("libc.so.6", "ld-linux-x86-64.so.2", "libstdc++.so.6", "libfabric.so.1")]
    [True, True, True, False]
    """
    return _NEVER_BOUND.fullmatch(posixpath.basename(name)) is not None
