"""The fixtures of the twin, for the tests in this folder."""

from tests.twin.fixtures import twin

__all__ = ["twin"]
