"""What every room of the lab uses: errors, files, progress, parallel work, randomness, registries."""
