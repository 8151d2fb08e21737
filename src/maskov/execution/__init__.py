"""How work is carried out: batches of masked passes, the epoch loop, asynchronous chains."""
