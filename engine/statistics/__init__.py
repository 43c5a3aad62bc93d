"""The statistics of a certificate: bounds, when to stop, and what the votes prove."""
