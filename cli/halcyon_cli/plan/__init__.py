"""What a spec would become, and what the planner decides on recorded observations."""
