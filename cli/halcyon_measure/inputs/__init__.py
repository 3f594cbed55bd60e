"""Contents of requests: tensors from files, or random tensors that fit the model's metadata."""
