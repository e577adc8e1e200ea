"""Measurements that the project keeps: `python -m benchmarks NAME --json FILE [--quick]`."""
