"""What a run leaves behind: its settings, its store, its results, and the audit of them."""
