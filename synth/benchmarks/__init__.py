"""Measured figures beside their targets and beside comparable open blocks."""
