"""Search for the maximum request rate at which a latency objective is met. Pure and seeded."""
