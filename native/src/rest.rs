//! The map column of what has no column of its own.

use std::collections::HashSet;

use crate::columns::{offset, Values};
use crate::keys::{Keys, TAG_PREFIX};

/// A row's entries come in the order in which their keys come last: tags of the log group, then contents. Since tags
/// may come after the logs, rows are written when their log group ends.
#[derive(Default)]
pub struct Rest<'a> {
    pub entries: usize,
    /// Where each row's entries end.
    pub ends: Vec<u8>,
    pub names: Values,
    pub values: Values,
    tags: Tags<'a>,
    contents: Vec<(usize, &'a [u8])>,
    /// Where each row's contents end.
    rows: Vec<usize>,
    is_repeated: bool,
    is_like_tag: bool,
}

/// The tags of a log group that have no column, each once, also as what every row of it begins with.
#[derive(Default)]
struct Tags<'a> {
    pairs: Vec<(&'a [u8], &'a [u8])>,
    names: Values,
    values: Values,
}

impl<'a> Rest<'a> {
    pub fn new() -> Self {
        Rest { ends: vec![0; 4], ..Self::default() }
    }

    /// The row that is being read has the content `value`.
    #[inline]
    pub fn put(&mut self, keys: &mut Keys<'a>, place: usize, value: &'a [u8], row: usize) {
        let key = keys.at(place);
        self.is_repeated |= key.seen == row + 1;
        self.is_like_tag |= key.name.starts_with(TAG_PREFIX);
        key.seen = row + 1;
        self.contents.push((place, value));
    }

    #[inline]
    pub fn end_row(&mut self, keys: &mut Keys<'a>, row: usize) {
        if self.is_repeated {
            self.drop_repeated(keys, row);
        }
        self.rows.push(self.contents.len());
    }

    #[cold]
    fn drop_repeated(&mut self, keys: &mut Keys<'a>, row: usize) {
        let begin = self.rows.last().copied().unwrap_or(0);
        let mut kept = self.contents.split_off(begin);
        kept.reverse();
        kept.retain(|&(place, _)| std::mem::replace(&mut keys.at(place).kept, row + 1) != row + 1);
        self.contents.extend(kept.into_iter().rev());
        self.is_repeated = false;
    }

    /// The log group that has these tags ends.
    pub fn end_group(&mut self, keys: &Keys<'a>, tags: &[(&'a [u8], &'a [u8])]) {
        if self.tags.pairs != tags {
            self.tags.set(tags);
        }
        let mut begin = 0;
        for &end in &self.rows {
            let contents = &self.contents[begin..end];
            if self.is_like_tag {
                let seen = contents.iter().map(|&(place, _)| keys.name(place)).collect();
                self.entries += self.tags.write_but(&seen, &mut self.names, &mut self.values);
            } else {
                self.entries += self.tags.write(&mut self.names, &mut self.values);
            }
            for &(place, value) in contents {
                self.names.push(keys.name(place));
                self.values.push(value);
            }
            self.entries += contents.len();
            self.ends.extend_from_slice(&offset(self.entries));
            begin = end;
        }
        self.rows.clear();
        self.contents.clear();
        self.is_like_tag = false;
    }
}

impl<'a> Tags<'a> {
    fn set(&mut self, tags: &[(&'a [u8], &'a [u8])]) {
        let mut seen = HashSet::new();
        self.pairs = tags.iter().rev().filter(|(name, _)| seen.insert(*name)).copied().collect();
        self.pairs.reverse();
        (self.names, self.values) = (Values::default(), Values::default());
        for (name, value) in &self.pairs {
            self.names.data.extend_from_slice(TAG_PREFIX);
            self.names.push(name);
            self.values.push(value);
        }
    }

    fn write(&self, names: &mut Values, values: &mut Values) -> usize {
        names.append(&self.names);
        values.append(&self.values);
        self.pairs.len()
    }

    /// The same without those that a content has the name of.
    #[cold]
    fn write_but(&self, seen: &HashSet<&[u8]>, names: &mut Values, values: &mut Values) -> usize {
        let (mut full, mut written) = (TAG_PREFIX.to_vec(), 0);
        for (name, value) in &self.pairs {
            full.truncate(TAG_PREFIX.len());
            full.extend_from_slice(name);
            if !seen.contains(full.as_slice()) {
                names.push(&full);
                values.push(value);
                written += 1;
            }
        }
        written
    }
}
