"""What the user meant: operators, uids, states, streams, levels. Pure data; knows neither Spark nor a backend."""
