"""The probe `node`: what each node is, recorded before anything else can fail on it."""
