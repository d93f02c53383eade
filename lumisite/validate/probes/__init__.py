"""What is measured and asserted in a job: steps, what is expected of them, and the pure functions that judge them."""
