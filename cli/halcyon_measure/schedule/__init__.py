"""Schedules of requests: scenarios, and their arrival times. Pure and seeded."""
