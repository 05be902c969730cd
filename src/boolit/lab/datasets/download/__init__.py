"""Published files: fetched, verified, and read without trusting them."""
