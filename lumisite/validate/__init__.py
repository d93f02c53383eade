"""What is proved after a change of the system: transport, samples, verdict, and users' job scripts."""

from lumisite.errors import LumisiteError


class InputError(LumisiteError):
    """A log, samples or a script that cannot be used; one fault a line."""
