"""Known-bad lines in users' job scripts."""
