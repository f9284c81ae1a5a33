//! The stand-in libraries themselves: what the CUDA backend's tests build upon.
