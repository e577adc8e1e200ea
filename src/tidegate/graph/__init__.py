"""The declared job: operators, uids, states, streams, levels. Pure data, independent of Spark and of state backends."""
