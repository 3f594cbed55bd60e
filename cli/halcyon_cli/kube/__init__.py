"""What commands read from a cluster: a synchronous client, a model with its children, free capacity, names for completion."""
