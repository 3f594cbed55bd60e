"""The autoscaler: from observations to a decision for each model, and its write to `/scale`.

The arithmetic is in `halcyon.scaling`. This package holds its inputs, its memory, its limits and its writes.
"""
