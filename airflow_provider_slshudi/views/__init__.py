"""What a person sees of pipelines: figures made of the ledger alone, for pages and commands."""
