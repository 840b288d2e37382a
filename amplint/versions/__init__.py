"""What code says of the torch version it runs on: gates, fallbacks, tests of versions, and what is wrong with them."""
