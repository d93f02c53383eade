"""The codes of findings, each with its meaning: a code stands for one kind of thing that a reader would do."""

from __future__ import annotations

from collections.abc import Mapping

CODES: Mapping[str, str] = {}
