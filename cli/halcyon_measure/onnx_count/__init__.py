"""Numbers of operations, parameters and bytes of an ONNX model, counted from its graph.

The model isn't run, and its weights aren't read.
"""
