"""What all pages that maskov serves have in common: who may reach them, and what they may send."""
