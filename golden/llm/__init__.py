"""A real language model: weights file reader, forward pass, trace capture."""
