"""Files, progress, parallel work, random numbers, devices, plugins and registries, shared by all packages of the lab."""
