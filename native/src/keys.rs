//! Which column a key belongs to. Logs mostly have the keys of the log before them, in the same order: each key
//! remembers what came after it, and only where that fails is a key looked up.

use std::collections::HashMap;

use crate::wire::{tag_of, BYTES};

pub const TAG_PREFIX: &[u8] = b"__tag__:";

pub struct Key<'a> {
    pub name: &'a [u8],
    pub slot: Option<usize>,
    /// The row that has had this key last, plus one.
    pub seen: usize,
    /// The same, of what was kept when repeated keys were dropped.
    pub kept: usize,
    /// The bytes before the value's length in a pair with this key; empty where they are not known.
    head: &'a [u8],
    followers: [usize; 2],
}

pub struct Keys<'a> {
    all: Vec<Key<'a>>,
    places: HashMap<&'a [u8], usize>,
}

/// Before the first key of a log.
pub const START: usize = 0;

impl<'a> Keys<'a> {
    pub fn new(named: &'a [Vec<u8>]) -> Self {
        let mut keys = Keys { all: Vec::new(), places: HashMap::new() };
        keys.all.push(Key::new(b"", None)); // START, found under no name
        for (slot, name) in named.iter().enumerate() {
            keys.add(name, Some(slot));
        }
        keys
    }

    fn add(&mut self, name: &'a [u8], slot: Option<usize>) -> usize {
        let place = self.all.len();
        self.all.push(Key::new(name, slot));
        self.places.insert(name, place);
        place
    }

    #[inline]
    pub fn at(&mut self, place: usize) -> &mut Key<'a> {
        &mut self.all[place]
    }

    /// The slot of a key, which is not remembered.
    pub fn slot(&self, name: &[u8]) -> Option<usize> {
        self.places.get(name).and_then(|&place| self.all[place].slot)
    }

    #[inline]
    pub fn name(&self, place: usize) -> &'a [u8] {
        self.all[place].name
    }

    /// The key after `before`, if it is one that was there before, and what follows it in `pair`.
    #[inline]
    pub fn guess(&mut self, before: usize, pair: &'a [u8]) -> Option<(usize, &'a [u8])> {
        let [first, second] = self.all[before].followers;
        if let Some(rest) = self.all[first].follow(pair) {
            return Some((first, rest));
        }
        let rest = self.all[second].follow(pair)?;
        self.all[before].followers = [second, first];
        Some((second, rest))
    }

    /// The key named `name` after `before`; `head` are the bytes before its value's length, if they are one piece.
    pub fn find(&mut self, before: usize, name: &'a [u8], head: &'a [u8]) -> usize {
        let place = match self.places.get(name) {
            Some(&place) => place,
            None => self.add(name, None),
        };
        if self.all[place].head.is_empty() {
            self.all[place].head = head;
        }
        let [first, _] = self.all[before].followers;
        self.all[before].followers = [place, first];
        place
    }
}

impl<'a> Key<'a> {
    fn new(name: &'a [u8], slot: Option<usize>) -> Self {
        Key { name, slot, seen: 0, kept: 0, head: b"", followers: [START; 2] }
    }

    /// What follows the head of this key in `pair`.
    #[inline]
    fn follow(&self, pair: &'a [u8]) -> Option<&'a [u8]> {
        if self.head.is_empty() {
            return None;
        }
        pair.strip_prefix(self.head)
    }
}

/// The tag before a pair's value.
pub const VALUE: u32 = tag_of(2, BYTES);
/// The tag before a pair's key.
pub const NAME: u32 = tag_of(1, BYTES);
