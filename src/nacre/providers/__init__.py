"""Model providers behind one protocol; knows requests and streams, not agents and tools."""
