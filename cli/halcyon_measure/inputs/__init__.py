"""What requests contain: tensors from files, or random ones that fit the metadata of the model."""
