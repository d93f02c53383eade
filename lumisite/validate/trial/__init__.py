"""What a setting is worth on this machine: the design, its slots, the answer with its proof, and the page."""
