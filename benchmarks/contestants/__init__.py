"""Those who count: each module has one way to count rows per key, as a `Contestant`."""
