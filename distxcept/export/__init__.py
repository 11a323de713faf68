"""Trained models in the formats of other programs, each loaded again and compared before it is handed out."""
