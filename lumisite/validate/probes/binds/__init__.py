"""The probe `binds`: what modules bind is there in the container, and the right libraries are used."""
