"""The APIs of models that compute embeddings and scores."""
