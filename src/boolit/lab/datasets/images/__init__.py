"""Datasets of images, and what happens to them before they are learnt from."""
