"""The probe `usersite`: packages come from the image."""
