"""Spark's shuffle without the buffers of `RDD.partitionBy`, which holds many items per task that reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from pyspark import RDD

In = TypeVar("In")
Out = TypeVar("Out")


def shuffled(rdd: RDD[In], send: Callable[[Iterable[In]], Iterable[tuple[int, Out]]], parts: int) -> RDD[Out]:
    """What `send` yields for the partitions of `rdd`, each item in the partition whose number it yields with it.

    An item goes to the JVM as it comes. `partitionBy` would first gather up to ten items for each part (pyspark 3.5,
    `RDD.partitionBy`); the rest here is as there.

    Args:
        rdd: the input.
        send: runs in a task, and yields pairs of a partition's number and an item.
        parts: how many partitions the result has.
    """
    from pyspark import RDD, serializers

    context: Any = rdd.context
    serializer, wire = context._unbatched_serializer, cast(Any, serializers)

    def framed(items: Iterable[In]) -> Iterator[bytes]:
        for part, item in send(items):
            yield wire.pack_long(part)
            yield serializer.dumps([item])

    keyed: Any = rdd.mapPartitions(framed, preservesPartitioning=True)
    keyed._bypass_serializer = True
    pairs = context._jvm.PairwiseRDD(keyed._jrdd.rdd()).asJavaPairRDD()
    partitioner = context._jvm.PythonPartitioner(parts, id(send))
    moved = context._jvm.PythonRDD.valueOfPair(pairs.partitionBy(partitioner))
    return RDD(moved, context, wire.BatchedSerializer(serializer))
