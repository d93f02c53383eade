"""The probe `pairs`: each node alone, and with each neighbour."""
