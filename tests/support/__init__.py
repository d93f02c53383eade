"""What several tests use: trees, images, scripts and records that are made, and how they are run."""
