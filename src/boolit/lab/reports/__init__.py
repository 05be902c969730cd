"""What is shown of results: tables and figures."""
