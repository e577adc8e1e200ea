"""How the tests are run: in parts, two at a time, in three tiers.

`fast` needs no JVM and takes about a minute. `ci` is everything a change can break. `nightly` is what takes hours.
"""
