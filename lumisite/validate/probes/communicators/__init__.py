"""The probe `communicators`: process groups come up one after the other."""
