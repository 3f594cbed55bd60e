"""Records of measurements in the cluster: the model's history, Events, and a capacity for the planner."""
