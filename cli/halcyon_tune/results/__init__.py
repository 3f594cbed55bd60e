"""Result of a tuning run: its findings, batch times for the planner, and its pages as text and HTML. Pure."""
