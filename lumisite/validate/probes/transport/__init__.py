"""The probe `transport`: which network carries the bytes."""
