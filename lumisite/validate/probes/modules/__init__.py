"""The probe `modules`: every module loads and unloads cleanly on each node."""
