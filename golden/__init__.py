"""The specification that runs: bit-exact NumPy models, under the same names as the RTL blocks."""
