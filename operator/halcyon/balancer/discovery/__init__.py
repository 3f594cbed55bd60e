"""Discovery of the model's server pods, from a watch of EndpointSlices and from the operator's notices, which arrive earlier."""
