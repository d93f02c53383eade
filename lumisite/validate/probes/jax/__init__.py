"""The probe `jax`: JAX finds its devices, and a collective is right."""
