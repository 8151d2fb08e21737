"""User interfaces: reports, the run viewer, rating pages, and the web server below them."""
