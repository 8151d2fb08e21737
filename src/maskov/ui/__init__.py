"""User interfaces: reports, the run viewer, and the web server below them."""
