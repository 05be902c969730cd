"""Datasets of images, decoding and augmentation."""
