"""Where noisy batches are made and votes are counted: one file a device, and the file's name is the device's name."""
