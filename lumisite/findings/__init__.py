"""What can be wrong: one type for it, the list of its codes, and the forms in which it is written."""
