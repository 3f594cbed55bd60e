"""Results of earlier measurements of a model."""
