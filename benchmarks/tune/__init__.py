"""Figures of tuning, of what is known of a model, and of batch inference beside its users."""
