"""Several ModelDeployments measured in turns: copies at the same time, and one client for all of them."""
