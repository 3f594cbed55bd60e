"""Operations, parameters and bytes of an ONNX model, counted from its graph: the model isn't run, its weights aren't read."""
