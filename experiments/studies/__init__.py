"""Studies of our own: mixing, lengths of translations, control, antibodies."""
