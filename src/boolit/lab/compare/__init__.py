"""Compare activations on the user's own table or folder of images."""
