"""From results to a certificate: bundles, what they prove, and how a certificate is issued."""
