"""What checks drive a platform with: a target, steps, small models, whole engines."""
