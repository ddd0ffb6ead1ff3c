"""Buckets of keys are those of Hudi's own writers."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from airflow_provider_slshudi.hudi.buckets import bucket_ids, bucket_of, java_hashes, new_file_id, record_keys
from airflow_provider_slshudi.hudi.gateway import Gateway

ODD = [
    "a:b", "x,y", "a:b:c", "::", ":", ",", ",:", ":,",
    "https://x/y", "https://x/y,z", "x:y,z:w", "id:y,z:w", "z:w,id:v",
    "id:x", "a,b:c", "id:,x:y", "x:y,id:1,id:2", "a,b,c:d,e:f", "id:1,2", "z:,id:", "ü:ß,id:😀", "a:b,id:c",
]  # fmt: skip


def _hudis(gateway: Gateway, keys: pa.Array, names: list[str], buckets: int) -> list[int]:
    fields = gateway.jvm.java.util.ArrayList()
    for name in names:
        fields.add(name)
    find = gateway.hudi.index.bucket.BucketIdentifier.getBucketId
    return [int(find(key, fields, buckets)) for key in keys.to_pylist()]


@pytest.mark.parametrize("buckets", [1, 7, 1000])
def test_one_column(gateway: Gateway, buckets: int) -> None:
    rng = random.Random(3)
    texts = ["".join(rng.choices("aZ09-_ äß漢😀", k=rng.randrange(1, 40))) for _ in range(100)]
    keys = pa.array([*texts, *ODD])
    assert record_keys(["id"], [keys]) == keys
    assert bucket_ids(["id"], [keys], keys, buckets).tolist() == _hudis(gateway, keys, ["id"], buckets)


def test_several_columns(gateway: Gateway) -> None:
    texts, numbers = pa.array([*ODD, "a"]), pa.array([*range(len(ODD)), -(2**40)])
    keys = record_keys(["id", "n"], [texts, numbers])
    assert keys[-1].as_py() == f"id:a,n:{-(2**40)}"
    found = bucket_ids(["id", "n"], [texts, numbers], keys, 1000)
    assert found.tolist() == _hudis(gateway, keys, ["id", "n"], 1000)


def test_a_slice_hashes_as_a_whole() -> None:
    texts = pa.array(["", "abc", "", "ä", "z" * 100])
    whole = java_hashes(texts).tolist()
    assert whole[:2] == [0, 96354] and java_hashes(texts.slice(1, 3)).tolist() == whole[1:4]


def test_a_file_group_is_named_by_its_bucket() -> None:
    assert bucket_of(new_file_id(17)) == 17 and new_file_id(17).startswith("00000017-") and len(new_file_id(0)) == 38
