//! KubeletConfiguration v1beta1: wire form, defaults, validation.
