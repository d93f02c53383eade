"""The effect of a setting on this machine: the design of a trial, its jobs, their results and the answer."""
