"""Why a model has as many replicas as it has, as data."""
