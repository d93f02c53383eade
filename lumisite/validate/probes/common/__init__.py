"""Scripts that run inside the container, one task for each rank: standard library, and PyTorch where they need it."""
