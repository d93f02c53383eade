"""What can be wrong: one type for it, a catalogue with its words, and the forms in which it is written."""
