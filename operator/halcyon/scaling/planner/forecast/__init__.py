"""Load forecasts: the arrival rate and its dispersion, the trend, seasons and recurring spikes."""
