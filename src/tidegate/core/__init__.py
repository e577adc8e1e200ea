"""Words every other package speaks: ids, errors, durations, fault points. Imports nothing of tidegate's."""
