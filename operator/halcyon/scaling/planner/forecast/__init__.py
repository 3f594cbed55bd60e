"""Load forecast: arrival rate, trend, seasons, recurring spikes, and how noisy they are."""
