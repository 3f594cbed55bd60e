"""Access to a cluster: a synchronous client, the objects of a model, free capacity, and model names."""
