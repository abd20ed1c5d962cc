"""Measurements of the golden algorithms on a real model, one command each."""
