"""Speed as ratios against a peer or a physical limit, measured in the same run (`make bench`)."""
