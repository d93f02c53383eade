"""The probe `affinity`: each rank has the cores next to its GPU."""
