"""What no scaler can beat, and how an outcome is scored."""
