"""Services of a table: cleaning, rewriting, metadata, mirrors, versions, verification."""
