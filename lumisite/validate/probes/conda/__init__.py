"""The probe `conda`: Python is the one of the image."""
