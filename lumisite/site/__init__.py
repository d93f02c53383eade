"""What the site is: its description, decoded with positions, and its versions and settings."""
