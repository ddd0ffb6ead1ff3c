//! One walk of a LogGroupList: https://www.alibabacloud.com/help/en/sls/developer-reference/data-encoding.

use crate::columns::{Column, Validity, Values};
use crate::keys::{Keys, NAME, START, TAG_PREFIX, VALUE};
use crate::rest::Rest;
use crate::wire::{tag_of, Found, Malformed, Reader, BYTES, FIXED32, VARINT};

const GROUP: u32 = tag_of(1, BYTES);
const LOG: u32 = tag_of(1, BYTES);
const TOPIC: u32 = tag_of(3, BYTES);
const SOURCE: u32 = tag_of(4, BYTES);
const LOG_TAG: u32 = tag_of(6, BYTES);
const TIME: u32 = tag_of(1, VARINT);
const CONTENT: u32 = tag_of(2, BYTES);
const TIME_NS: u32 = tag_of(4, FIXED32);

/// The columns that every log has.
#[derive(Default)]
pub struct Meta {
    pub cursors: Vec<u8>,
    pub places: Vec<u8>,
    pub times: Vec<u8>,
    pub nanoseconds: Vec<u8>,
    pub has_nanoseconds: Validity,
    pub topics: Values,
    pub sources: Values,
}

/// All columns of a body.
pub struct Table<'a> {
    pub groups: usize,
    pub rows: usize,
    pub meta: Meta,
    pub columns: Vec<Column<'a>>,
    pub rest: Rest<'a>,
    keys: Keys<'a>,
    /// The slots of keys that tags have.
    tagged: Vec<usize>,
    /// The tags of the log group that is being read.
    tags: Tags<'a>,
    /// How many bytes may still be copied.
    left: u64,
}

type Tags<'a> = Vec<(&'a [u8], &'a [u8])>;

/// A key and its value.
struct Pair<'a> {
    name: &'a [u8],
    value: &'a [u8],
    /// The bytes before the value's length, where the pair is a key and then a value.
    head: &'a [u8],
}

/// Topic, source and tags are there once for all logs of their log group, and each log gets a copy: the only way to more
/// bytes than the body has.
pub const WIDE: &str = "more copies of topic, source and tags than there may be, with the log group";

/// The logs of `body`, whose first log group has cursor `first`, with a column for each of `keys`; at most `most` bytes
/// are copies. Offsets are 32 bits, so body and copies together have less than 2 GiB.
pub fn walk<'a>(body: &'a [u8], first: i64, keys: &'a [Vec<u8>], most: u64) -> Found<Table<'a>> {
    let Some(room) = (i32::MAX as usize).checked_sub(body.len()) else {
        return Err(Malformed { what: "2 GiB, and Arrow's limit, are reached", at: body.len() });
    };
    read(body, first, keys, most.min(room as u64))
        .map_err(|found| Malformed { at: found.at - body.as_ptr() as usize, ..found })
}

fn read<'a>(body: &'a [u8], first: i64, keys: &'a [Vec<u8>], most: u64) -> Found<Table<'a>> {
    let mut table = Table {
        groups: 0,
        rows: 0,
        meta: Meta::default(),
        columns: keys.iter().map(|name| Column::new(name)).collect(),
        rest: Rest::new(),
        keys: Keys::new(keys),
        tagged: (0..keys.len()).filter(|&slot| keys[slot].starts_with(TAG_PREFIX)).collect(),
        tags: Tags::new(),
        left: most,
    };
    let mut reader = Reader(body);
    while !reader.is_at_end() {
        match reader.tag()? {
            GROUP => {
                let at = reader.address();
                let cursor = first.checked_add(table.groups as i64);
                let cursor = cursor.ok_or(Malformed { what: "a cursor beyond 64 bits", at })?;
                table.group(Reader(reader.bytes()?), cursor, at)?;
                table.groups += 1;
            }
            other => reader.skip(other)?,
        }
    }
    table.columns.iter_mut().for_each(|column| column.fill(table.rows));
    Ok(table)
}

impl<'a> Pair<'a> {
    fn read(all: &'a [u8]) -> Found<Self> {
        let (mut reader, mut fields) = (Reader(all), 0);
        let mut pair = Pair { name: b"", value: b"", head: b"" };
        while !reader.is_at_end() {
            fields += 1;
            match reader.tag()? {
                NAME => pair.name = reader.bytes()?,
                VALUE => {
                    if fields == 2 {
                        pair.head = &all[..all.len() - reader.0.len()];
                    }
                    pair.value = reader.bytes()?;
                }
                other => reader.skip(other)?,
            }
            if fields > 2 {
                pair.head = b"";
            }
        }
        Ok(pair)
    }
}

impl<'a> Table<'a> {
    fn group(&mut self, mut reader: Reader<'a>, cursor: i64, at: usize) -> Found<()> {
        let (begin, mut topic, mut source) = (self.rows, &b""[..], &b""[..]);
        let mut tags = std::mem::take(&mut self.tags);
        tags.clear();
        while !reader.is_at_end() {
            match reader.tag()? {
                LOG => self.log(Reader(reader.bytes()?))?,
                TOPIC => topic = reader.bytes()?,
                SOURCE => source = reader.bytes()?,
                LOG_TAG => {
                    let pair = Pair::read(reader.bytes()?)?;
                    tags.push((pair.name, pair.value));
                }
                other => reader.skip(other)?,
            }
        }
        let (logs, meta) = (self.rows - begin, &mut self.meta);
        let of_tags: usize = tags.iter().map(|(name, value)| TAG_PREFIX.len() + name.len() + value.len()).sum();
        // Asked before memory is taken for the copies.
        let copied = ((topic.len() + source.len() + of_tags) as u64).saturating_mul(logs as u64);
        self.left = self.left.checked_sub(copied).ok_or(Malformed { what: WIDE, at })?;
        meta.topics.repeat(topic, logs);
        meta.sources.repeat(source, logs);
        meta.cursors.extend(std::iter::repeat_n(cursor.to_ne_bytes(), logs).flatten());
        meta.places.extend((0..logs as i32).flat_map(i32::to_ne_bytes));
        if !self.tagged.is_empty() {
            self.hand_out(&mut tags, begin);
        }
        self.rest.end_group(&self.keys, &tags);
        self.tags = tags;
        Ok(())
    }

    /// Takes the tags that have a column out of those of the log group whose rows are those from `begin`.
    fn hand_out(&mut self, tags: &mut Tags<'a>, begin: usize) {
        let mut full = TAG_PREFIX.to_vec();
        tags.retain(|(name, value)| {
            full.truncate(TAG_PREFIX.len());
            full.extend_from_slice(name);
            let slot = self.keys.slot(&full);
            if let Some(slot) = slot {
                self.columns[slot].tag = Some(value);
            }
            slot.is_none()
        });
        for &slot in &self.tagged {
            self.columns[slot].end_group(begin, self.rows);
        }
    }

    fn log(&mut self, mut reader: Reader<'a>) -> Found<()> {
        let (row, mut before) = (self.rows, START);
        let (mut time, mut nanoseconds) = (0, None);
        while !reader.is_at_end() {
            match reader.tag()? {
                CONTENT => before = self.content(reader.bytes()?, row, before)?,
                TIME => time = reader.varint()? as u32,
                TIME_NS => nanoseconds = Some(reader.fixed32()?),
                other => reader.skip(other)?,
            }
        }
        self.meta.times.extend_from_slice(&time.to_ne_bytes());
        self.meta.nanoseconds.extend_from_slice(&nanoseconds.unwrap_or(0).to_ne_bytes());
        if nanoseconds.is_none() {
            self.meta.has_nanoseconds.clear(row, row + 1);
        }
        self.rest.end_row(&mut self.keys, row);
        self.rows += 1;
        Ok(())
    }

    /// Puts a content where it belongs; which key it had.
    #[inline]
    fn content(&mut self, pair: &'a [u8], row: usize, before: usize) -> Found<usize> {
        let (place, value) = match self.guess(pair, before) {
            Some(found) => found,
            None => {
                let pair = Pair::read(pair)?;
                (self.keys.find(before, pair.name, pair.head), pair.value)
            }
        };
        match self.keys.at(place).slot {
            Some(slot) => self.columns[slot].put(row, value),
            None => self.rest.put(&mut self.keys, place, value, row),
        }
        Ok(place)
    }

    /// The key and the value of a content, if it has the key that is expected and then a value that ends where it does.
    #[inline]
    fn guess(&mut self, pair: &'a [u8], before: usize) -> Option<(usize, &'a [u8])> {
        let (place, rest) = self.keys.guess(before, pair)?;
        let mut reader = Reader(rest);
        let value = reader.bytes().ok()?;
        reader.is_at_end().then_some((place, value))
    }
}
