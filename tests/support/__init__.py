"""What tests share: small models, runs of the commands, and the noise and the mathematics written again."""
