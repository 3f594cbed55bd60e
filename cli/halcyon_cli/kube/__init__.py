"""Access to a cluster: a synchronous client, a model and its objects, free capacity, names for completion."""
