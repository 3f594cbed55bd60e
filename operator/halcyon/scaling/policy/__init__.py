"""What both scaling policies have in common: the decision as data, and which limit held it back."""
