"""Access to a cluster: a synchronous client, a model's objects, free capacity, and model names for completion."""
