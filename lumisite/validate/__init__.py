"""What is proved after a change of the system: runs of probes, transport, samples, verdict, and the report."""

from lumisite.errors import LumisiteError


class InputError(LumisiteError):
    """A log, samples or a script that cannot be used; one fault a line."""
