"""Rows 4.1 and 4.4: a step of the load on pods that take 20 s to start, with the planner that orders them."""
