"""Buckets of keys are those of Hudi's own writers."""

from __future__ import annotations

import itertools
import random
import time

import pyarrow as pa
import pytest

from airflow_provider_slshudi.hudi.client.gateway import Gateway
from airflow_provider_slshudi.hudi.files.filegroups import bucket_of, new_file_id
from airflow_provider_slshudi.rows.keys import bucket_ids, java_hashes, record_keys, unusable, values_in_key

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


def test_a_long_key_of_separators_takes_time_by_its_length() -> None:
    for form in ("a:{}", "a:{},b:x", "{}"):
        for part in (":", ",", ",:", ":,"):
            key = form.format(part * (1_000_000 // len(part)))
            began = time.process_time()
            values_in_key(key, ["a", "b"])
            assert time.process_time() - began < 3, f"{form} with {part}"


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


WORDS = ["__null__", "__empty__", "__null__,id:__empty__", "x"]


def test_hudis_own_words_are_read_as_hudi_reads_them(gateway: Gateway) -> None:
    one, other = (pa.array([text for pair in itertools.product(WORDS, WORDS) for text in [pair[at]]]) for at in (0, 1))
    keys = record_keys(["id", "s"], [one, other])
    found = bucket_ids(["id", "s"], [one, other], keys, 1000).tolist()
    assert found == _hudis(gateway, keys, ["id", "s"], 1000)
    assert found[0] == found[1] != found[3], "NULL and an empty text have one hash"
    alone = bucket_ids(["id"], [one], one, 1000).tolist()
    assert alone == _hudis(gateway, one, ["id"], 1000)


@pytest.mark.parametrize(
    ("names", "keys", "expected"),
    [
        (["id"], [(",::",), ("::,",), ("a,b:c:d",), ("a,b:c",), ("id:a,b:c:d",), ("a:b,id:c",)], [1, 1, 1, 0, 1, 0]),
        (
            ["id", "s"],
            [("a", "b"), ("a,s:b", "c"), ("a", "b,s:c"), ("x", "p,q:r:s"), ("p,q:r:s", "x")],
            [0, 1, 0, 1, 0],
        ),
        (["id", "s"], [("a,s:b", None), (None, "p,q:r:s")], [1, 0]),
    ],
)
def test_keys_that_hudi_cannot_read_or_tell_apart_are_unusable(
    names: list[str], keys: list[tuple[str | None, ...]], expected: list[int]
) -> None:
    columns = [pa.array([key[at] for key in keys], pa.string()) for at in range(len(names))]
    assert unusable(names, columns).tolist() == [bool(is_so) for is_so in expected]


def test_a_slice_hashes_as_a_whole() -> None:
    texts = pa.array(["", "abc", "", "ä", "z" * 100])
    whole = java_hashes(texts).tolist()
    assert whole[:2] == [0, 96354] and java_hashes(texts.slice(1, 3)).tolist() == whole[1:4]


def test_a_file_group_is_named_by_its_bucket() -> None:
    assert bucket_of(new_file_id(17)) == 17 and new_file_id(17).startswith("00000017-") and len(new_file_id(0)) == 38
