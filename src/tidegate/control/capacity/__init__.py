"""What a job of given rates, keys and state needs: a model and its constants."""
