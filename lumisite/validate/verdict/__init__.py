"""Samples and gates before and after a change: does the system still work as well as before, and which nodes do not."""
