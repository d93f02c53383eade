"""The probe `ddp`: ranks train one model together."""
