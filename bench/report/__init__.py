"""`ars-bench report`: runs as one page that needs nothing else, and as figures."""
