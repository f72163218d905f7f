"""A next-item recommender on ML-100K: HSTU layers on pantile, trained and served on CPUs. README.md tells how."""
