"""What a Prometheus knows: arrival history, GPU utilisation from DCGM, metrics of pods without agents."""
