"""The page of engines in Chinese: its sentences one by one, while readers' own words stay as they are."""

from __future__ import annotations

import re

_CELL = r"(?<=\| )"
_TEXTS: tuple[tuple[str, str], ...] = (
    (
        r"# Which engines read the tables\n`make readers` makes this page\..*?(?=\n\n)",
        "# 哪些引擎能读这些表\n本页由 `make readers` 生成。它让本软件包写出每一种表，"
        "含每一种类型的列、NULL、表情符号和 1582 年以前的日期，并做好镜像。\n"
        "然后向每个读取方询问行数、每一行的每一个值，以及对每种标量类型和分区各一个过滤条件的结果，再与写入的行比较。",
    ),
    (r"- `right`: all answers are those of the rows\.", "- `right`：所有回答都与写入的行一致。"),
    (
        r"- `refused`: the reader stopped with an error, at the table or at some of the queries\.",
        "- `refused`：读取方在这张表上或某些查询上报错停止。",
    ),
    (
        r"- `wrong`: an answer differs and the reader reported no error\.[^\n]*",
        "- `wrong`：某个回答不一致，而读取方没有报错。每一处都是读取方自己的缺陷，见下文。",
    ),
    (
        r"- `not run`: the reader could not be fetched or started where this page was made\.",
        "- `not run`：生成本页的机器上取不到或启动不了这个读取方。",
    ),
    (
        r"A number leads to the reader's words, or to the fault\. "
        r"\[Versions\]\(([^)]*)\) and\n\[mirrors\]\(([^)]*)\) are settings of a pipeline\.",
        r"数字指向读取方的原话或缺陷说明。[版本](\1)和[镜像](\2)是流水线的设置。",
    ),
    (r"## Hudi tables of version (\d)", r'<a id="hudi-tables-of-version-\1"></a>\n\n## 版本 \1 的 Hudi 表'),
    (r"## Iceberg mirrors", '<a id="iceberg-mirrors"></a>\n\n## Iceberg 镜像'),
    (r"## Delta mirrors", '<a id="delta-mirrors"></a>\n\n## Delta 镜像'),
    (rf"{_CELL}reader(?= \|)", "读取方"),
    (rf"{_CELL}appended(?= \|)", "追加"),
    (rf"{_CELL}escaped partition values(?= \|)", "转义的分区值"),
    (rf"{_CELL}a batch is pending(?= \|)", "有未决的批次"),
    (rf"{_CELL}clustered(?= \|)", "经过 clustering"),
    (rf"{_CELL}archived(?= \|)", "经过归档"),
    (rf"{_CELL}columns evolved(?= \|)", "列有变化"),
    (rf"{_CELL}copy-on-write upserts(?= \|)", "Copy-On-Write 更新"),
    (rf"{_CELL}merge-on-read, log files(?= \|)", "Merge-On-Read，有日志文件"),
    (rf"{_CELL}merge-on-read, compacted(?= \|)", "Merge-On-Read，经过 compaction"),
    (
        r"A mirror of a merge-on-read table shows what is compacted.*?(?=\n\n)",
        "Merge-On-Read 表的镜像显示经过 compaction 的内容，也与它比较。结果因表的版本而异时，单元格写明版本。",
    ),
    (r"## Clean-ups by other engines", '<a id="clean-ups-by-other-engines"></a>\n\n## 其他引擎的清理'),
    (
        r"The same run has engines clean up the mirrors.*?(?=\n\n)",
        "同一次运行还让各引擎清理一张表的镜像。这张表有一个未决的批次，文件已有十四天；清理前后比较 Hudi 表的文件。\n"
        "最后一条语句是镜像的任何设置都阻止不了的。",
    ),
    (
        r"\| engine \| on the mirror in \| statement \| answer \| the Hudi table \| the next mirror run \|",
        "| 引擎 | 镜像格式 | 语句 | 回答 | Hudi 表 | 下一次镜像运行 |",
    ),
    (rf"{_CELL}no file gone(?= \|)", "没有文件消失"),
    (rf"{_CELL}(\d+) files gone, (\d+) of them in `\.hoodie`(?= \|)", r"\1 个文件消失，其中 \2 个在 `.hoodie`"),
    (rf"{_CELL}the mirror is right(?= \|)", "镜像正确"),
    (rf"{_CELL}there is no Hudi table to follow(?= \|)", "已没有可跟随的 Hudi 表"),
    (r"## Words and faults", '<a id="words-and-faults"></a>\n\n## 原话和缺陷'),
    (r"(?m)^(\d+)\. Refused by ([^\n]*): `", r"\1. \2 拒绝：`"),
    (
        r"Wrong: ClickHouse has no NULL for arrays, maps and tuples, and gives an empty one",
        "错误：ClickHouse 的数组、map 和 tuple 没有 NULL，给出空值",
    ),
    (
        r"Wrong: ClickHouse's `hudi\(\)` reads no timeline:[^\n]*(?= \(clickhouse)",
        "错误：ClickHouse 的 `hudi()` 不读 timeline：它取每个 file id 最新的基础文件，"
        "于是把没有提交的批次、被 clustering 替换的文件和归档的文件都算进去，而不读日志文件",
    ),
    (
        r"Wrong: Trino's Hudi connector gives the text `\\N` for the partition of rows without one",
        r"错误：对没有分区的行，Trino 的 Hudi connector 给出文本 `\\N`",
    ),
    (
        r"Wrong: Trino's Delta connector reads times as `timestamp\(3\) with time zone`, rounded to milliseconds",
        "错误：Trino 的 Delta connector 把时间读成 `timestamp(3) with time zone`，舍入到毫秒",
    ),
    (
        r"Wrong: Hudi 1\.2\.0's input formats give Hive a timestamp in whole milliseconds",
        "错误：Hudi 1.2.0 的 input format 交给 Hive 的 timestamp 只到毫秒",
    ),
    (
        r"Whether faults show on a table of the same rows by Hudi's own writer, too:",
        "由 Hudi 自己的写入器写出同样行的表上是否也有这些缺陷：",
    ),
    (r": NULL as an empty value: there, too", "：NULL 成为空值：同样有"),
    (r": no timeline: there, too", "：不读 timeline：同样有"),
    (r": milliseconds of a timestamp: there, too", "：timestamp 只到毫秒：同样有"),
    (r": no fault", "：没有缺陷"),
    (
        r"## Not run\n.*?(?=\n\n)",
        '<a id="not-run"></a>\n\n## 没有运行\n下列引擎没有任何运行为证；各自的来源说明它们带哪个 Hudi。'
        "Hudi 1.0 读版本 6 和 8，Hudi 0.14 和 0.15 读版本 6。",
    ),
    (r"\| engine \| what it ships \| source \|", "| 引擎 | 附带 | 来源 |"),
    (
        r"Flink, StarRocks, Doris and Impala are not run either, and no source here says which Hudi they ship\.",
        "Flink、StarRocks、Doris 和 Impala 也没有运行，它们带哪个 Hudi 没有查证。",
    ),
)


def in_chinese(page: str) -> str:
    """The page in Chinese.

    Args:
        page: in English, as `page.write` made it.
    """
    for pattern, text in _TEXTS:
        page, count = re.subn(pattern, text, page, flags=re.DOTALL)
        if not count:
            raise ValueError(f"the page of engines has no {pattern!r} to translate")
    return page
