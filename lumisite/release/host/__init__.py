"""`check --host`: a node by the site description and the release that is deployed; `checks.CHECKS` has all checks."""
