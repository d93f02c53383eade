"""What is written: modules and the helper, as text."""
