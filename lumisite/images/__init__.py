"""What an image is, read without running it."""
