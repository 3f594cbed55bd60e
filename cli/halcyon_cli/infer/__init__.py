"""One inference request to a model: input tensors, connection, request and timing."""
