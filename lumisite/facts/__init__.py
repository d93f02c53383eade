"""What the machine is and was: captured, compared, and told."""
