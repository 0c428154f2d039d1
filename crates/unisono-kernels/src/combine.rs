//! Finishing a sum whose shares lie on several devices.
