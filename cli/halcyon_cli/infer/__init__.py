"""One inference against a served model: input tensors, the connection, the request and its timing."""
