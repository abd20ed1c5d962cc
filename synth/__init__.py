"""Synthesis, timing and area reports of the blocks in :mod:`rtl`."""
