"""Code that both scaling policies share: the decision as data, and the bounds on replicas."""
