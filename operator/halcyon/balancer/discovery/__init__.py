"""Discovery of the model's server pods from EndpointSlices, and from notices of the operator, which arrive earlier."""
