"""lumisite: an HPC site's layer between Slurm and the container."""

__version__ = "0.1.0"
