"""The probe `wrapper`: the same training in the container and in the container wrapper's environment."""
