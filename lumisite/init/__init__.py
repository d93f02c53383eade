"""A site description from the machine itself: what Slurm and one node of each kind say, written down with questions."""
