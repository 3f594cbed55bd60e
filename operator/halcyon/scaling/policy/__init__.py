"""Code shared by both scaling policies: the decision as data, and the limits that held it back."""
