//! How the provider behaves: without faults as a good one, with them as the seed says.
