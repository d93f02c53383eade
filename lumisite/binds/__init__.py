"""What a container needs from the host, and what of that it may have."""
