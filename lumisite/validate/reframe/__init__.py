"""The probes as a ReFrame test module."""
