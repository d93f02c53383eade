"""The probe `collectives`: collectives are right, and how fast they are."""
