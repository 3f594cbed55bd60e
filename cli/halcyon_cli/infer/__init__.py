"""One inference request to a served model: input tensors, connection, request and timing."""
