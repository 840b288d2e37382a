"""What half precision does to values under the new regions: read for it, repaired, or refused."""
