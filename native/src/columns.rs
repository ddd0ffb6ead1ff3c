//! Arrow's buffers while they grow. Offsets are 32 bits, so a column's data has less than 2 GiB: see `walk`.

use crate::keys::TAG_PREFIX;

/// Which rows hold something; no bits as long as all do.
#[derive(Default)]
pub struct Validity {
    bits: Vec<u8>,
    pub nulls: usize,
    /// Rows that hold nothing and have no bits yet: they mostly follow one another.
    run: (usize, usize),
}

impl Validity {
    /// Rows `[from, to)`, of which none was spoken of before, hold nothing.
    #[inline]
    pub fn clear(&mut self, from: usize, to: usize) {
        self.nulls += to - from;
        if self.run.1 != from {
            self.write();
            self.run.0 = from;
        }
        self.run.1 = to;
    }

    fn write(&mut self) {
        let (mut row, to) = self.run;
        self.bits.resize(to.div_ceil(8).max(self.bits.len()), 0xFF);
        while row < to {
            if row % 8 == 0 && row + 8 <= to {
                self.bits[row / 8..to / 8].fill(0);
                row = to / 8 * 8;
            } else {
                self.bits[row / 8] &= !(1 << (row % 8));
                row += 1;
            }
        }
    }

    /// The bitmap for `rows` rows, where one is needed.
    pub fn finish(mut self, rows: usize) -> Option<Vec<u8>> {
        (self.nulls > 0).then(|| {
            self.write();
            self.bits.resize(rows.div_ceil(8), 0xFF);
            self.bits
        })
    }
}

/// Binary values without a NULL among them.
pub struct Values {
    pub offsets: Vec<u8>,
    pub data: Vec<u8>,
}

impl Default for Values {
    fn default() -> Self {
        Values { offsets: vec![0; 4], data: Vec::new() }
    }
}

impl Values {
    #[inline]
    pub fn push(&mut self, value: &[u8]) {
        self.data.extend_from_slice(value);
        self.end();
    }

    /// What was added to the data since the last end is one value.
    #[inline]
    pub fn end(&mut self) {
        self.offsets.extend_from_slice(&offset(self.data.len()));
    }

    /// Adds all of `other`.
    #[inline]
    pub fn append(&mut self, other: &Values) {
        let begin = self.data.len();
        self.data.extend_from_slice(&other.data);
        for end in other.offsets.chunks_exact(4).skip(1).flat_map(<[u8]>::first_chunk) {
            self.offsets.extend_from_slice(&offset(begin + i32::from_ne_bytes(*end) as usize));
        }
    }

    pub fn repeat(&mut self, value: &[u8], times: usize) {
        self.data.reserve(value.len() * times);
        self.offsets.reserve(4 * times);
        for _ in 0..times {
            self.push(value);
        }
    }
}

#[inline]
pub fn offset(place: usize) -> [u8; 4] {
    // `walk` keeps it in range; a mistake there would panic here, not wrap.
    i32::try_from(place).expect("less than 2 GiB").to_ne_bytes()
}

/// The column of one key. Rows that no value was put into are filled in later: with the tag of the key that the log
/// group has, otherwise with NULL.
#[derive(Default)]
pub struct Column<'a> {
    pub values: Values,
    pub valid: Validity,
    rows: usize,
    last: usize,
    /// The value that the log group being read has as a tag.
    pub tag: Option<&'a [u8]>,
    /// Contents, where the key is one that tags have: what is put in between them is known when the log group ends.
    waiting: Option<Vec<(usize, &'a [u8])>>,
}

impl<'a> Column<'a> {
    pub fn new(name: &[u8]) -> Self {
        Column { waiting: name.starts_with(TAG_PREFIX).then(Vec::new), ..Self::default() }
    }

    /// `row` has `value`, whatever it had before.
    #[inline]
    pub fn put(&mut self, row: usize, value: &'a [u8]) {
        match &mut self.waiting {
            None => self.write(row, value),
            Some(waiting) => waiting.push((row, value)),
        }
    }

    #[inline]
    fn write(&mut self, row: usize, value: &[u8]) {
        if self.rows != row {
            if self.rows > row {
                self.values.data.truncate(self.last);
                self.values.offsets.truncate(4 * self.rows);
            } else {
                self.fill(row);
            }
        }
        self.last = self.values.data.len();
        self.values.push(value);
        self.rows = row + 1;
    }

    /// Fills in what is missing before `row` with NULL.
    pub fn fill(&mut self, row: usize) {
        if row > self.rows {
            self.valid.clear(self.rows, row);
            self.fill_with(b"", row);
        }
    }

    fn fill_with(&mut self, value: &[u8], row: usize) {
        self.values.repeat(value, row.saturating_sub(self.rows));
        self.rows = self.rows.max(row);
    }

    /// A log group with the rows `[from, to)` ends.
    pub fn end_group(&mut self, from: usize, to: usize) {
        let (tag, waiting) = (self.tag.take(), self.waiting.as_mut().map(std::mem::take).unwrap_or_default());
        self.fill(from);
        for (row, value) in waiting {
            if let Some(tag) = tag {
                self.fill_with(tag, row);
            }
            self.write(row, value);
        }
        if let Some(tag) = tag {
            self.fill_with(tag, to);
        }
    }
}
