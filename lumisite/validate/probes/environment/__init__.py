"""The probe `environment`: what each node and each rank has, against what the site description says."""
