//! Image store: content-addressed layers, load, pack, unpack.
