"""Two servers compared over rounds, and a leaderboard of several. Pure."""
