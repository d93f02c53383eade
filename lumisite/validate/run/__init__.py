"""A run at work: what was asked, which nodes and jobs, their scripts, Slurm, and the run's folder."""
