"""Simulation of one run: arrivals, pods, Triton's batcher, and the compiled event loop."""
