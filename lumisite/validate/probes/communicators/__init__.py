"""The probe `communicators`: process groups come up one after the other."""

#: Patterns of its metrics, which decide nothing where no rule of the site fits them.
NOT_DECIDING = ("communicators/*",)
