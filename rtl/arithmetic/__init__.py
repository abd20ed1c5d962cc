"""Adders and other arithmetic."""
