//! resource.Quantity: exact parsing, rounding, canonical text.
