"""The probes `usersite` and `conda`: packages and Python are those of the image."""
