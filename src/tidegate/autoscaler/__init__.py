"""Whether another parallelism would be better for a job: samples of its epochs, a decision, and the reasons for it. Pure."""
