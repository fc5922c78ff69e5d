"""Forest attention that skips masked blocks: plain XLA and Pallas kernels for TPU and GPU."""
