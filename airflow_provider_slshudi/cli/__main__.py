"""`python -m airflow_provider_slshudi.cli`."""

import sys

from airflow_provider_slshudi.cli import main

sys.exit(main())
