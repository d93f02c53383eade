"""How a node is read: its files, libraries, cores and GPUs."""
