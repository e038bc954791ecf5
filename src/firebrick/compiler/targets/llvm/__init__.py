"""The LLVM target: code generators, and the host side that compiles, caches and runs what they write."""
