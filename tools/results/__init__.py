"""Tables and figures of docs/ from stored runs; `tools/redraw_results.py` writes them."""
