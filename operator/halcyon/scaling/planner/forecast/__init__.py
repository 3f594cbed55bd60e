"""What the load will be: arrival rate, trend, season, recurring spikes, and how noisy they are."""
