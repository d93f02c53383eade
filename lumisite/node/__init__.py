"""What a node is: its topology, the CPU masks that follow from it, and the facts captured from it."""
