"""The same base files under Iceberg's and Delta's metadata, for engines that cannot read the Hudi table."""
