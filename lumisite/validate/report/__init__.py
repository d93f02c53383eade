"""A verdict, what changed and what to do, for a terminal, a page, a status page, CI or a program."""
