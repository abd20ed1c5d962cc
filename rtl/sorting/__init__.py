"""Sorting networks, the reconfigurable importance sorter and selection."""
