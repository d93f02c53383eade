"""What is written: rendered trees, and their deployment, comparison and rollback."""
