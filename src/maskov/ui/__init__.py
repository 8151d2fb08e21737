"""What people look at: reports, the run viewer, rating pages, and the web server beneath them."""
