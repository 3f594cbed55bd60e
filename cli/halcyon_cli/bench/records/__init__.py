"""What a measurement leaves in the cluster: the model's history, events about its load, and a capacity for the planner."""
