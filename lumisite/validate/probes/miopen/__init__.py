"""The probe `miopen`: caches and databases are private, and on the node itself."""
