"""What `import maskov` offers: options by name, and objects where they are wanted."""
