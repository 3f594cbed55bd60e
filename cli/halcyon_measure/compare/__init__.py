"""Comparison of two servers over several rounds, and a leaderboard of several servers. Pure."""
