"""lumisite: an HPC site's layer between Slurm and the container."""

__version__ = "2026.12.0"
