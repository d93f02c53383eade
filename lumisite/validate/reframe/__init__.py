"""ReFrame: its results as samples, and the probes as its tests."""
