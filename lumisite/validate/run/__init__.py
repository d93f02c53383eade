"""A run at work: its request, which nodes and jobs, their scripts, Slurm, and the run's folder."""
