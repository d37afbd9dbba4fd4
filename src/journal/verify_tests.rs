//! Every kind of damage, and its name.
