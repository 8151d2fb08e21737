"""What all served pages share: access control, request parsing and static files."""
