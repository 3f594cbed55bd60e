"""Code shared by both scaling policies: the decision as data, and the bounds of a plan."""
