"""YAML whose texts are what was typed."""

from __future__ import annotations

import yaml

_TAGS = ("tag:yaml.org,2002:null", "tag:yaml.org,2002:merge")


class AsWritten(yaml.SafeLoader):
    """Reads every unquoted value as text, but for `null`, `~` and nothing.

    YAML 1.1 makes false of `no`, 8 of `010`, 5400 of `1:30:00` and a date of `2026-01-31`, wherever they stand. The
    fields' own types make numbers and flags of the texts. This is not libyaml's loader, which ends the process where
    lists are nested deeply, and takes other texts for YAML.
    """

    yaml_implicit_resolvers = {  # noqa: RUF012 - as PyYAML declares it
        letter: [(tag, form) for tag, form in resolvers if tag in _TAGS]
        for letter, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
